"""Which contributions make an update: rules that consistency models share."""
