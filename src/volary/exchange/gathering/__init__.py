"""Parameters that are with their owners, and with others while these compute with them: gathered, used, freed."""
