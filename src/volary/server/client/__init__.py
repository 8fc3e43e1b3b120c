"""A worker's side: what it asks of servers, and its connections to them."""
