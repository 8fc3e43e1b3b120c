"""How processes of a run that were started find it."""
