"""Judges settings of a run's members: lost workers and drivers, workers that come and go, their shares of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.session.fitting.abilities import keeps_versions
from volary.session.fitting.needs import CONSISTENCY, ENGINE, EXCHANGE, PARTITION, Need

if TYPE_CHECKING:
    from volary.session.spec import Session, Strategy


def of_members(strategy: Strategy) -> Iterator[Need]:
    """Yield what going on with other members needs. Raises SettingError where members are fixed."""
    if strategy.recover == "memory":
        yield from _of_recovery(strategy)
    elif strategy.spares:
        raise SettingError(
            f"spares is {strategy.spares}, and with recover=checkpoint nobody takes the place of a lost worker; "
            "accepted: 0, or recover=memory"
        )
    _fit_without_driver(strategy)
    comes_and_goes = strategy.recover == "memory" or (keeps_versions(strategy) and strategy.consistency.elastic)
    if strategy.between is not None and not comes_and_goes:
        raise SettingError(
            f"workers is {strategy.between}, and with recover={strategy.recover} and consistency="
            f"{CONSISTENCY.name_of(type(strategy.consistency))} they are fixed; accepted: a number, or recover=memory"
        )
    if strategy.balance == "auto":
        _fit_balance(strategy)


def _of_recovery(strategy: Strategy) -> Iterator[Need]:
    """Yield what going on without a lost worker needs. Raises SettingError where only that one had what is needed."""
    why = "recover is memory, and with"
    if keeps_versions(strategy):
        raise SettingError(
            f"{why} exchange={EXCHANGE.name_of(type(strategy.exchange))} servers keep the parameters, whichever "
            "worker is lost; accepted: recover=checkpoint, or exchange=allreduce"
        )
    if not _samples_of_their_own(strategy):
        raise SettingError(
            f"{why} partition={PARTITION.name_of(type(strategy.partition))} no other worker has what the lost one "
            "kept; accepted: recover=checkpoint, or partition=data or sharded"
        )
    if strategy.backend not in ("auto", "gloo"):
        raise SettingError(f"{why} backend={strategy.backend} waits for a lost worker do not end; accepted: auto, gloo")
    yield Need("recover", "memory", "whole gradient", "exchange.behind=false, or recover=checkpoint")


def _samples_of_their_own(strategy: Strategy) -> bool:
    """Whether no two workers compute with the same samples, as those do that hold parts of one replica."""
    if strategy.partition.chooses:
        return False
    mesh = strategy.partition.mesh(strategy.workers)
    return bool(mesh.data * mesh.shard == strategy.workers)


def _fit_without_driver(strategy: Strategy) -> None:
    """Raise SettingError where no other driver can take the place of a lost one."""
    if strategy.wait_for_driver_s and strategy.recover != "memory":
        raise SettingError(
            f"wait_for_driver_s is {strategy.wait_for_driver_s:g}, and with recover={strategy.recover} workers do not "
            "meet again under another driver; accepted: 0, or recover=memory"
        )
    if strategy.standby and not strategy.wait_for_driver_s:
        raise SettingError(
            "standby is true, and wait_for_driver_s is 0, so that workers end with their driver; accepted: false, or "
            "wait_for_driver_s=60"
        )


def _fit_balance(strategy: Strategy) -> None:
    """Raise SettingError where workers do not divide each batch among them alone, and wait for each other."""
    why = "balance is auto, and with"
    if keeps_versions(strategy):
        name = EXCHANGE.name_of(type(strategy.exchange))
        raise SettingError(f"{why} exchange={name} servers hand out samples; accepted: equal, or exchange=allreduce")
    if strategy.consistency.pushes.value != "gradient":
        raise SettingError(
            f"{why} consistency={CONSISTENCY.name_of(type(strategy.consistency))} workers learn from samples of their "
            "own between two means; accepted: equal, or consistency=bsp"
        )
    if not _samples_of_their_own(strategy):
        raise SettingError(
            f"{why} partition={PARTITION.name_of(type(strategy.partition))} several workers compute with the same "
            "samples; accepted: equal, or partition=data or sharded"
        )


def fit_recovery(session: Session) -> None:
    """Raise SettingError for what cannot go on with fewer workers in the middle of an epoch."""
    data, why = session.data, "strategy.recover is memory, and"
    engine = ENGINE.name_of(type(session.engine))
    if session.strategy.spares and engine != "local":
        raise SettingError(
            f"strategy.spares is {session.strategy.spares}, and engine {engine} starts as many workers as train; "
            "accepted: 0, or engine=local"
        )
    if session.strategy.wait_for_driver_s and engine != "local":
        raise SettingError(
            f"strategy.wait_for_driver_s is {session.strategy.wait_for_driver_s:g}, and what engine {engine} has "
            "started ends with the driver; accepted: 0, or engine=local"
        )
    if any(rule.until.unit != "never" for rule in session.train.freeze):
        raise SettingError(f"{why} train.freeze thaws layers by checkpoints; accepted: until=never, or checkpoint")
    if data.batch.largest(data.batch_size) != data.batch_size:
        raise SettingError(f"{why} data.batch tries sizes, which no step repeats; accepted: fixed, or checkpoint")
    if session.train.sync_batch_norm:
        raise SettingError(
            f"{why} train.sync_batch_norm is true, whose layers are bound to all workers; accepted: "
            "false, or checkpoint"
        )
