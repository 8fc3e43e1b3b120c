"""What is drawn in a terminal."""
