"""In which order chunks travel: the same on all ranks, so that no two can wait for each other crosswise."""

from __future__ import annotations

from collections.abc import Sequence


def most_urgent_first(ready_s: Sequence[float], takes_s: Sequence[float], urgency: Sequence[int]) -> list[int]:
    """The order in which a wire would carry chunks that always takes the most urgent one that exists.

    ready_s: when in a step each chunk's gradients exist. takes_s: how long it is on the wire. urgency: the place in the
    network of the layer that waits for it; the smallest is needed first by the next forward. Chunks of the same layer
    keep their order. Priority scheduling as in Jayarajan et al. 2019 (P3) and Peng et al. 2019 (ByteScheduler).
    """
    coming = sorted(range(len(ready_s)), key=lambda chunk: (ready_s[chunk], chunk))
    here: list[int] = []
    order: list[int] = []
    now = 0.0
    while coming or here:
        if not here:
            now = max(now, ready_s[coming[0]])
        while coming and ready_s[coming[0]] <= now:
            here.append(coming.pop(0))
        chosen = min(here, key=lambda chunk: (urgency[chunk], chunk))
        here.remove(chosen)
        order.append(chosen)
        now += takes_s[chosen]
    return order
