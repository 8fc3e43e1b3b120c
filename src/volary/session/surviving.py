"""Says which losses a run survives by its strategy. After any other it ends, and `volary resume` continues it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.session.spec import Strategy


def survives(strategy: Strategy) -> str:
    """Say what it survives, for example: the loss of workers while one is left; of servers: none."""
    if not strategy.servers:
        recovers = strategy.recover == "memory" and strategy.workers > 1
        spares = f", with {strategy.spares} to take their places" if strategy.spares else ""
        apart = ", but not of one together with the one that has the copy of its share" if strategy.posts_shares else ""
        return f"the loss of workers while one is left{apart}{spares}" if recovers else "no loss of a worker"
    copies = strategy.exchange.replicas > 1
    return f"{_workers(strategy, copies)}; of servers: {f'any one of {strategy.servers}' if copies else 'none'}"


def _workers(strategy: Strategy, copies: bool) -> str:
    if not strategy.consistency.elastic or strategy.shares == 1:
        return "no loss of a worker"
    if strategy.ranks_each > 1:
        return "the loss of workers, each with those that hold its replica, while one replica is left"
    if not isinstance(strategy.exchange.servers, str):
        return "the loss of workers while one is left"
    if copies:
        return "the loss of any one worker, with the server beside it"
    return "no loss of a worker, as the server beside it has the only copy of its part (exchange.replicas=2 has two)"
