"""What a run is a run of, and what can be known of it before it starts."""
