"""What `volary doctor` looks at: the machine, and which parts of Volary work on it."""
