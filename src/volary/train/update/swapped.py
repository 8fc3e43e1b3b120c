"""Averages that stand where weights do for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from volary.comm.groups.blocking import from_rank, gather_plain
from volary.exchange.gradients.plan import in_memory_order
from volary.naming import named_parameters

if TYPE_CHECKING:
    from torch import nn

    from volary.comm.groups.group import Group
    from volary.sharding.holdings import Holdings


@contextmanager
def swapped(swap: Callable[[], None]) -> Iterator[None]:
    """Call `swap`, which exchanges weights and averages, and once more in the end, whatever is raised between."""
    swap()
    try:
        yield
    finally:
        swap()


@contextmanager
def lent_to_all(
    averaged: Callable[[], AbstractContextManager[None]],
    module: nn.Module,
    holdings: Holdings,
    group: Group,
    gathers_anew: Callable[[], bool],
) -> Iterator[None]:
    """Lend the ranks of `group`, which compute with all of `module`, the averages that owners have of their shares.

    averaged: lends this rank those of its own. gathers_anew: see `volary.train.replica.Voting`; where ranks do not,
    each has all. A collective call.
    """
    gather_plain(None, group)  # ranks of a machine may have parameters in one memory, and read each other's share
    with averaged():
        spread(module, holdings, group, gathers_anew)
        yield
        gather_plain(None, group)
    spread(module, holdings, group, gathers_anew)


def spread(module: nn.Module, holdings: Holdings, group: Group, gathers_anew: Callable[[], bool]) -> None:
    """Let the ranks of `group` have what owners have changed of their shares of `module`; see `lent_to_all`.

    A collective call.
    """
    if gathers_anew():
        gather_plain(None, group)  # nobody reads before all own what is to be read
        return
    named = {name: in_memory_order(one.detach()) for name, one in named_parameters(module)}
    for part, ranks in holdings.keepers.items():
        from_rank(ranks[0], named[part.name][part.start : part.end], group)
