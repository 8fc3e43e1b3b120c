"""The runs below a folder: their names, the table of them, several side by side, and whether one has changed."""
