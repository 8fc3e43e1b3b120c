"""A worker's side of parameter servers: what is pushed, and what is pulled."""
