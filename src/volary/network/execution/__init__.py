"""How layers are run: activations computed anew in backward, compiled code, and what is quicker for outputs alone."""
