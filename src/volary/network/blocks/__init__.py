"""The modules and functions that the zoo's networks are made of, one idea per file; imported by `build` only."""
