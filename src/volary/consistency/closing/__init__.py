"""Rules that consistency models share: which contributions make an update."""
