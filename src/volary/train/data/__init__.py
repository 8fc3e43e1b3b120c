"""A session's samples on one worker: its share, in the parts that its network takes, and those that cannot be read."""
