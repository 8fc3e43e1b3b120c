"""Who is here and does what, for a whole run: plain state machines."""
