"""Ways through one address and port: of a gate beside the run, or of a relay between machines."""
