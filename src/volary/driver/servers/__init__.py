"""Runs with parameter servers, and who may join them."""
