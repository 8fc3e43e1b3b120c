"""How parameters change, given the sum of their gradients."""
