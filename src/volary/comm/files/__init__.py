"""Files of a run that travel over its keyed connection, where processes do not see its directory."""
