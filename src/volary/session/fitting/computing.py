"""Judges ways to compute: types, compiled networks, batch norms of all workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from volary.errors import SettingError
from volary.session.fitting.needs import CONSISTENCY, PARTITION, Need


def fit_elsewhere(precision: str, partition: Any, *, compiled: bool) -> None:
    """Raise SettingError for ways to compute that processes which are no workers do not know."""
    reason = f"strategy.partition is {PARTITION.name_of(type(partition))}: {partition.elsewhere}"
    for name, value, accepted in (("precision", precision, "fp32"), ("compile", compiled, False)):
        if value != accepted:
            raise SettingError(f"train.{name} is {str(value).lower()}, and {reason}; accepted: {str(accepted).lower()}")


def fit_compiled(recompute: Sequence[str], codec: Any) -> None:
    """Raise SettingError for what needs to see layers run one by one."""
    if recompute:
        raise SettingError(
            "train.compile is true, and train.recompute chooses layers that run one by one, where compiled code itself "
            "chooses what to keep; accepted: one of the two"
        )
    if codec.needs_gradients or codec.chooses:
        raise SettingError(
            f"train.compile is true, and codec {codec.name} looks at layers as they run; accepted: compile=false, or "
            "another codec, as int8"
        )


def synchronised(recompute: Sequence[str], consistency: Any, partition: Any, *, compiled: bool) -> Iterator[Need]:
    """Yield what batch norms of all workers need. Raises SettingError where workers do not run one network each."""
    why = "train.sync_batch_norm is true, and with"
    if compiled or recompute:
        setting = "train.compile" if compiled else "train.recompute"
        raise SettingError(f"{why} {setting} layers do not run in one order on all workers; accepted: one of the two")
    yield Need("train.sync_batch_norm", "true", "steps together", "exchange=allreduce, or false")
    if consistency.pushes.value != "gradient":
        name = CONSISTENCY.name_of(type(consistency))
        raise SettingError(
            f"{why} consistency={name} workers' networks differ, so that their batches are not one; accepted: "
            "consistency=bsp, or false"
        )
    if "steps together" in partition.needs:
        name = PARTITION.name_of(type(partition))
        raise SettingError(
            f"{why} partition={name} workers hold parts of one network; accepted: partition=data or sharded, or false"
        )
