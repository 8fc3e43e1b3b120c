"""The roster of a run: its members, its work and its updates, as plain state machines."""
