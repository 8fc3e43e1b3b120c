"""The columns of tables of predictions."""
