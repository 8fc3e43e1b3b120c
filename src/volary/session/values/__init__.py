"""Values of settings: periods, sizes, URLs, references to code."""
