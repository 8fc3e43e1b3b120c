"""How replicas stay one model, as a worker of the loop sees it."""
