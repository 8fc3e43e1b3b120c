"""What a loop of a user's own saves: what may be kept, and how a checkpoint has it."""
