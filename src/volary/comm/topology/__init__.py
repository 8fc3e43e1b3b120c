"""The topology of a run: nodes, sub-networks, and what links carry."""
