"""What `volary data` does with a whole data set: packed into shards, checked, counted."""
