"""Groups of ranks, and what keeps their sockets closed to others."""
