"""From YAML and Python values to settings, with every problem told at once."""
