"""How a worker saves: together with the others, beside the steps, at a pace that leaves the cores to them."""
