"""Copies a run to loggers: after it, or beside it while it trains."""
