"""What a run needs to know of the machine it is on."""
