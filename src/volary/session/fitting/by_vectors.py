"""Judges what an optimiser needs that servers have as sums of vectors: true gradients and losses of whole batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from volary.session.data_section import Data
    from volary.session.train_section import Train

CONSISTENCY, OPTIMIZER = Choice("volary.consistency"), Choice("volary.train.optimizers")


def fit_by_vectors(optimizer: Any, train: Train, data: Data, *, served: bool) -> None:
    """Raise SettingError for what makes such an optimiser's losses and gradients others than those of its batches.

    served: servers have it.
    """
    name = OPTIMIZER.name_of(type(optimizer))
    searches = optimizer.line_search != "none"
    if train.mix:
        raise SettingError(
            f"train.mix is given, and optimizer {name} compares gradients of the same loss, which mixed samples make "
            "another one each time; accepted: none, or optimizer=sgd"
        )
    if searches and not served:
        raise SettingError(
            f"optimizer.line_search is {optimizer.line_search}, and with exchange=allreduce a step has one loss; "
            "accepted: none, or exchange=server"
        )
    if searches and data.sampling.by != "order":
        raise SettingError(
            f"optimizer.line_search is {optimizer.line_search}, which compares losses of the same samples, and "
            f"data.sampling.by={data.sampling.by} draws others each epoch; accepted: order, or line_search=none"
        )


def fit_on_servers(optimizer: Any, train: Train, consistency: Any, codec: Any, exchange: Any) -> None:
    """Raise SettingError for what leaves servers with another gradient than that of a whole batch."""
    why = f"optimizer is {OPTIMIZER.name_of(type(optimizer))}, which compares gradients of whole batches, and"
    if not consistency.whole_batches:
        model = CONSISTENCY.name_of(type(consistency))
        raise SettingError(
            f"{why} with consistency={model} an update is of less, or of other parameters; accepted: bsp or portions"
        )
    if not codec.exact:
        raise SettingError(f"{why} codec {codec.name} leaves out some of them; accepted: none, or factors")
    if exchange.pulls != "none":
        raise SettingError(
            f"{why} exchange.pulls={exchange.pulls} lets workers compute them with other parameters than "
            "servers keep; accepted: none"
        )
    given: dict[str, Any] = {
        "clip_norm": train.clip_norm, "clip_value": train.clip_value, "clip_adaptive": train.clip_adaptive
    }  # fmt: skip
    for setting, value in given.items():
        if value is not None:
            raise SettingError(
                f"{why} train.{setting}={value:g} would let it compare others; accepted: no {setting}, as it divides "
                "its steps by the curvature itself"
            )
    if train.on_nonfinite == "skip":
        raise SettingError(f"{why} train.on_nonfinite=skip leaves out some of one; accepted: stop")
    if any(one.until.unit != "never" for one in train.freeze):
        raise SettingError(
            f"{why} train.freeze.until lets layers join that it remembers no gradients of; accepted: never"
        )
