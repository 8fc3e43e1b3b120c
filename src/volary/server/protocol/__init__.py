"""What is said between workers, servers and roster, and how parameters are cut into slices."""
