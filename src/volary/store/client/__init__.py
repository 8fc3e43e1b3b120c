"""A worker's side of a served store: its keys' memory, and its connections."""
