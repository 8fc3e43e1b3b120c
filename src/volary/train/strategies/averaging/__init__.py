"""Strategies in which each worker updates its own copy, and what copies agree on now and then."""
