"""How layers are run while they are trained: activations computed anew in backward, and compiled code."""
