"""Updaters as a user writes them."""


def decay(key, pushed, stored):
    """An optimiser as a user may write it; a key says how much of the stored values stays."""
    if key == "broken":
        raise ValueError("this key is not to be updated")
    stored.mul_(0.5 if key == "half" else 1.0).add_(pushed)
    pushed.zero_()  # an updater may use up what was pushed


def shaped(key, pushed, stored):
    """Wants whole tensors: adds the column means."""
    stored.add_(pushed.mean(0, keepdim=True))
