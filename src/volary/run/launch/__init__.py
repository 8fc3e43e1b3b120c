"""How the processes of a run find it after they have been started."""
