"""Tables: of runs, of a sweep, of what a run with servers counts, of how each layer's gradients travel."""
