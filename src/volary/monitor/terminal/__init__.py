"""Views of a run in a terminal."""
