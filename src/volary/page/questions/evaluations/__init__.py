"""What evaluations leave beside curves: pictures and texts."""
