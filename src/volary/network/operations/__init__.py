"""Operations of layers for which torch.nn has no module, and the sizes that windows leave."""
