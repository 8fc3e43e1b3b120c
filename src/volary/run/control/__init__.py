"""Requests of other processes to a run while it trains, by files in its directory."""
