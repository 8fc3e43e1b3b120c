"""Which ranks share what, and what links carry."""
