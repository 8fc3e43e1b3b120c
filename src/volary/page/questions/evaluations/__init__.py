"""The results of evaluations beside curves: pictures and texts."""
