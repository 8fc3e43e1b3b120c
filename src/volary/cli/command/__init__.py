"""The parts that verbs share: the command itself, its arguments, its output."""
