"""Judges what a training loop of one's own can have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.session.fitting.abilities import cut_over_servers, in_parts, keeps_versions, updates_in_groups
from volary.session.fitting.needs import CONSISTENCY, EXCHANGE, PARTITION, Need

if TYPE_CHECKING:
    from volary.session.spec import Strategy


def of_own_loop(strategy: Strategy, *, early_update: bool) -> Iterator[Need]:
    """Yield what a loop of one's own needs. early_update: it looks at no gradients.

    Raises SettingError for a budget of memory, which nobody can hold it to.
    """
    if strategy.memory is not None:
        raise SettingError(
            f"strategy.memory is {strategy.memory}, and what a loop of your own takes is not known before it begins; "
            "accepted: null"
        )
    partition = PARTITION.name_of(type(strategy.partition))
    if strategy.partition.elsewhere:
        raise SettingError(
            f"strategy.partition is {partition}: {strategy.partition.elsewhere}, and a loop of your own computes them "
            "itself; accepted: partition=data"
        )
    whole = "partition.level=2 with early_update=true, as your loop may look at all parameters"
    if cut_over_servers(strategy):
        raise SettingError(
            f"strategy.partition is {partition}, and with exchange=server a loop of your own reads all parameters; "
            "accepted: exchange=allreduce, or a session"
        )
    yield Need("strategy.partition", partition, "all parameters", whole)
    yield Need(
        "strategy.partition",
        partition,
        "own loop",
        "partition=data, tensor, hybrid, pipeline, mesh, or sharded up to level 2",
    )
    _fit_own_groups(strategy, partition)
    if early_update:
        fit_early(strategy)
    _fit_own_consistency(strategy)
    if strategy.balance == "auto":
        raise SettingError(
            "strategy.balance is auto, and the loop is your own, which has batches made ahead; accepted: equal"
        )
    if strategy.recover == "memory":
        _fit_own_recovery(strategy, early_update=early_update)
    # what it does not look at may be late: what servers update, early updates, means of parameters
    if keeps_versions(strategy) or early_update or strategy.consistency.pushes.value != "gradient":
        return
    name = EXCHANGE.name_of(type(strategy.exchange))
    behind = "early_update=true, or allreduce without behind, as your loop sees the gradients of each step otherwise"
    yield Need("strategy.exchange", name, "whole gradient", behind)
    early = "early_update=true, or partition=data, as your loop sees the gradients of each step otherwise"
    if not in_parts(strategy):
        yield Need("strategy.partition", partition, "all sums", early)


def _fit_own_consistency(strategy: Strategy) -> None:
    """Raise SettingError for a consistency model that has to know what a loop of one's own does, or decide it."""
    consistency, name = strategy.consistency, CONSISTENCY.name_of(type(strategy.consistency))
    if consistency.threads > 1:
        raise SettingError(
            f"strategy.consistency.threads is {consistency.threads}, and a loop of your own runs in one "
            "thread, which Volary cannot divide; accepted: threads=1, or a session"
        )
    if consistency.pieces(strategy.workers) is not None:
        raise SettingError(
            f"strategy.consistency is {name}, and the loop of your own says what each worker computes, so that none "
            "can take another's portion; accepted: backup, or a session"
        )


def _fit_own_recovery(strategy: Strategy, *, early_update: bool) -> None:
    """Raise SettingError where a step of a loop of one's own cannot be left out and made again."""
    why = "strategy.recover is memory, and"
    if strategy.posts_shares:
        raise SettingError(
            f"{why} with strategy.partition={PARTITION.name_of(type(strategy.partition))} nobody has a copy of the "
            "shares of your loop's optimisers; accepted: partition=data, recover=checkpoint, or a session"
        )
    if early_update:
        raise SettingError(f"{why} early_update is true, so that updates come after their step; accepted: false")
    if strategy.wait_for_driver_s:
        raise SettingError(
            f"strategy.wait_for_driver_s is {strategy.wait_for_driver_s:g}, and a loop of your own ends with its "
            "driver; accepted: 0, or a session"
        )


def _fit_own_groups(strategy: Strategy, partition: str) -> None:
    """Raise SettingError for updates that several workers make together between two steps of a loop of one's own."""
    if updates_in_groups(strategy):
        raise SettingError(
            f"strategy.partition is {partition}, and with local steps workers of a group that have samples of their "
            "own would update within your step; accepted: tensor or pipeline within groups, or a session"
        )


def fit_early(strategy: Strategy) -> None:
    """Raise SettingError where no update of a loop of one's own can come after its step."""
    if in_parts(strategy):
        raise SettingError(
            f"early_update is true, and with partition={PARTITION.name_of(type(strategy.partition))} each step updates "
            "parts of layers before it ends; accepted: early_update=false"
        )
