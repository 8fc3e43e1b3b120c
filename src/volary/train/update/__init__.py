"""Updates of parameters, given the sum of their gradients."""
