"""The loops that encode and decode: Numba's on CPUs, torch operations elsewhere."""
