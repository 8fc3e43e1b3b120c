"""A session as people see it: a form of its settings, and what is said beside each."""
