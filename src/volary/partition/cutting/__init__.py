"""How layers are cut over workers: plans, layers that hold a part of their tensors, and what passes between them."""
