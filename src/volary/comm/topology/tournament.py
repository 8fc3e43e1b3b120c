"""A tournament shows what the links between nodes carry; groups of fast pairs are sub-networks.

In each round every node has one partner, and all pairs send both ways at once: so a trunk that several pairs share
shows what it leaves to each. After as many rounds as there are other nodes each pair has met.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.comm.topology.kept_rates import Groups
    from volary.comm.topology.links import Links

BUDGET_S = 0.8  # of all rounds together, roughly, however slow a link is
PROBE_BYTES = 160 * 1024  # a rested link lets some 100 KB pass at once: more than that
LEAST_BYTES, MOST_BYTES = 128 * 1024, 4 * 1024 * 1024  # of what is timed, each way
SMALL_BYTES, SMALL_TRIES = 1024, 3
CLEAR = 2.5  # times that pairs inside a sub-network are faster than pairs across
_TAG = 1 << 30  # no sum uses it

Pair = tuple[int, int]  # of nodes, the lower first
Rates = dict[Pair, float]  # bytes per second in each direction


def subnetworks(rates: Rates, nodes: int) -> Groups:
    """Groups of two or more nodes in which each pair is clearly faster than each pair across; empty if there are none.

    A node that is slow towards all others is a slow node and no sub-network.
    """
    ordered = sorted(rates.values())
    gap, least = max(((fast / slow, fast) for slow, fast in pairwise(ordered)), default=(1.0, 0.0))
    if gap < CLEAR:
        return ()
    near = {node: {node} for node in range(nodes)}
    for (one, other), rate in rates.items():
        if rate >= least:
            near[one].add(other)
            near[other].add(one)
    groups = {tuple(sorted(group)) for group in near.values()}
    # as many members as nodes: nobody is in two groups, so all pairs in each are fast
    whole = sum(map(len, groups)) == nodes and len(groups) > 1 and min(map(len, groups)) > 1
    return tuple(sorted(groups)) if whole else ()


def rounds(players: int) -> list[list[Pair]]:
    """Every pair of players once, in rounds in which each plays at most once (the circle method)."""
    circle: list[int | None] = [*range(players), *([None] if players % 2 else [])]
    half, found = len(circle) // 2, []
    for _ in range(len(circle) - 1):
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append(sorted((min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def tournament(
    links: Links, leaders: Sequence[int], budget_s: float = BUDGET_S, only: Collection[Pair] | None = None
) -> Rates:
    """The rate of each pair of nodes. A collective call: ranks that lead no node only receive the others' times.

    only: the pairs that play; None: all.
    """
    games = [[pair for pair in game if only is None or pair in only] for game in rounds(len(leaders))]
    games = [game for game in games if game]
    rates: Rates = {}
    for game in games:
        size_bytes, took_s = PROBE_BYTES, _play(links, leaders, game, PROBE_BYTES)
        slowest_s = max(took_s.values())
        if slowest_s < BUDGET_S:  # else more would take as long again, and be as rough
            wanted_bytes = PROBE_BYTES * budget_s / len(games) / slowest_s
            size_bytes = round(min(MOST_BYTES, max(LEAST_BYTES, wanted_bytes)))
            took_s = _play(links, leaders, game, size_bytes)
        rates |= {pair: size_bytes / pair_s for pair, pair_s in took_s.items()}
    return rates


def message_s(links: Links, leaders: Sequence[int]) -> float:
    """Seconds of a small message between two of `leaders`, the slowest pair's. A collective call."""
    game, *_ = rounds(len(leaders))
    tries = [_play(links, leaders, game, SMALL_BYTES) for _ in range(SMALL_TRIES)]
    return max(min(took_s[pair] for took_s in tries) for pair in game)


def _play(links: Links, leaders: Sequence[int], game: Sequence[Pair], size_bytes: int) -> dict[Pair, float]:
    """Let all pairs of a game send so many bytes both ways, at once; the seconds that each took, alike on all ranks."""
    import torch
    from torch import distributed

    from volary.comm.groups.peers import peers_needed

    own = next((pair for pair in game if links.rank in (leaders[pair[0]], leaders[pair[1]])), None)
    took_s = torch.zeros(links.size, dtype=torch.float64)
    if own is not None:
        partner = next(leaders[node] for node in own if leaders[node] != links.rank)
        took_s[links.rank] = _exchange(links, partner, size_bytes)
    with peers_needed():
        distributed.all_reduce(took_s, group=links.group.process_group)  # also keeps rounds apart
    # of the two, who began later has not waited for its partner
    return {pair: min(float(took_s[leaders[node]]) for node in pair) for pair in game}


def _exchange(links: Links, partner: int, size_bytes: int) -> float:
    import torch

    outgoing, incoming = (torch.zeros(size_bytes, dtype=torch.uint8) for _ in range(2))
    coming = links.receive(incoming, partner, _TAG)
    started = time.perf_counter()
    leaving = links.send(outgoing, partner, _TAG)
    coming.wait()
    leaving.wait()
    return max(time.perf_counter() - started, 1e-9)
