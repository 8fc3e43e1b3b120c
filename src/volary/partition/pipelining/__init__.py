"""A network as a chain of stages: where it may be cut, which cut is best, and who computes what when."""
