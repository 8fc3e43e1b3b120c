"""Reads settings from YAML and Python values, and reports every problem at once."""
