"""The machine that a run is on: cores, memory, limits, versions, usage."""
