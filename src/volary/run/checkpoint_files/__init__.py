"""Where checkpoints are kept: in a folder, or in a store."""
