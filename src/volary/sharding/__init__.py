"""One map of who has what: ranges of parameters, shares of samples, and whose they are. Nothing here does I/O."""
