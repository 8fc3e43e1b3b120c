"""What layers compute where torch.nn has no module for it, and the sizes that windows leave."""
