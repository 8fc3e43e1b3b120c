"""A driver that takes the place of a lost one: at once, or as a standby beside it."""
