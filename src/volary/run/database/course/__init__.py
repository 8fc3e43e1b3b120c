"""How the steps of a run went, in as many columns as there is room for."""
