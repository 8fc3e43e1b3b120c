"""One map of who has what: ranges of parameters, and which ranks hold, own and share them. Nothing here does I/O."""
