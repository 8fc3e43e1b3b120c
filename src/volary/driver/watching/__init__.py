"""Who is alive, who waits for whom, who is slow, and what a failed run is told."""
