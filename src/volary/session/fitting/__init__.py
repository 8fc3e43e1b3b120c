"""Judges which settings fit together: `session/spec.py` and `session/script.py` ask here."""
