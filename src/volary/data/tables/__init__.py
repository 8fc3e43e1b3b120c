"""Rows of named columns, whatever file they are in: what is missing, standardising, and the files that hold them."""
