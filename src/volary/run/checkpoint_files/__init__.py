"""The files of checkpoints: in a folder, or in a store."""
