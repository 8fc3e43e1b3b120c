"""A server's side: slices of the parameters, what changes them, and what moves their bytes."""
