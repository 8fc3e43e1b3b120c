"""Bytes of one sample to an array. Decoders let go of the interpreter's lock, so that threads work side by side."""
