"""Loops of one's own that go on without a lost worker: those that are left meet in the middle of what they do."""
