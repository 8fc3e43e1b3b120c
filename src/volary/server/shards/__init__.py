"""A server's side: slices of the parameters, what becomes of them, and what moves their bytes."""
