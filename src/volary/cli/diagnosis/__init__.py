"""Checks of `volary doctor`: the machine, and which parts of Volary work on it."""
