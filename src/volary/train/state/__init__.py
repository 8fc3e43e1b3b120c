"""The state of training: what a checkpoint holds, and how it is written and read."""
