"""The protocol between workers, servers and roster, and the slices into which parameters are cut."""
