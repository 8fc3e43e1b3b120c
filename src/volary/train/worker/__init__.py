"""One worker, put together: its connections, what it trains with, the checkpoints it writes, its job in a run."""
