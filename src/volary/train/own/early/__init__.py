"""Updates of a user's optimiser that are made as sums arrive, as late as under the next forward."""
