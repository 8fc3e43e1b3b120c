"""The settings of a run over servers, as its roster goes by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from volary.server.batch_methods.lbfgs import LbfgsSettings
from volary.server.roster.plateau import PlateauRule


@dataclass(frozen=True, kw_only=True)
class RosterSettings:
    """The settings of a run over servers.

    workers, servers: that it begins with. replicas: servers that keep each shard. give_up_after_s: of a server's
    silence, after which it is lost. batch_size: samples of a global batch. steps: the run's length, given the steps of
    an epoch. evaluate_every, checkpoint_every, write_every (a text): in steps, given those of an epoch; None: never.
    patience: evaluations in a row without a better one after which the run ends early. skip_corrupt: share of an
    epoch's samples that may be lost, as they cannot be read. clip_norm: the largest norm of an update's gradient; None:
    any. plateau: of a learning rate that goes by evaluations. stops: whether the run is to stop, to be resumed, with
    updates that bring it from so many steps to so many, given those of an epoch. thaws: the steps after which more of
    the network is trained, in order, given those of an epoch: what servers keep is fixed until then. lbfgs: of the
    method that directs updates; None: servers have an update rule of their own.
    """

    workers: int
    servers: int
    replicas: int
    give_up_after_s: float
    batch_size: int
    steps: Callable[[int], int]
    evaluate_every: Callable[[int], int | None]
    checkpoint_every: Callable[[int], int | None]
    write_every: Callable[[int], int | None] = lambda _: None
    patience: int | None = None
    skip_corrupt: float = 1.0
    keep_best: bool = True
    clip_norm: float | None = None
    plateau: PlateauRule | None = None
    stops: Callable[[int, int, int], bool] = lambda _before, _after, _per_epoch: False
    thaws: Callable[[int], tuple[int, ...]] = lambda _: ()
    each: int = 1
    lbfgs: LbfgsSettings | None = None

    def called(self, worker: int) -> str:
        """The name of a worker, in a sentence."""
        return f"rank {worker}" if self.each == 1 else f"replica {worker + 1}"
