"""Values that a loop of a user's own saves: which may be saved, and how a checkpoint has them."""
