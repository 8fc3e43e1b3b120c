"""What verbs share: the command itself, its arguments, what it prints."""
