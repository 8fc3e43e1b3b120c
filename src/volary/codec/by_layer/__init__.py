"""Codecs by layer: each parameter's codec is that of the first pattern that matches its name."""
