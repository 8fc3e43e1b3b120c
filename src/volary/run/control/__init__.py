"""What other processes ask a run to do while it trains, by files in its directory."""
