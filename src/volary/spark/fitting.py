"""Whether a session's network takes what a frame has: two of its rows go through it before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from volary.executors.arrays import arrays_of
from volary.network.flow import Flow
from volary.session.values.reference import name_of
from volary.train.model import build_criterion, build_network
from volary.train.state.seeds import kept_generators

if TYPE_CHECKING:
    from volary.executors.arrays import ColumnLayout
    from volary.session.spec import Session

TRIED_ROWS = 2


def require_fit(session: Session, batches: Sequence[Any], layout: ColumnLayout, classes: int | None) -> None:
    """Raise BadInput, one sentence, if the rows of Arrow's batches do not go through network, loss and backward.

    layout: of the batches' columns. classes: how many the targets tell apart; None: they are no whole numbers.
    """
    inputs, targets = map(np.concatenate, zip(*(arrays_of(batch, layout) for batch in batches), strict=True))
    if inputs.dtype == np.uint8:
        inputs = inputs.astype(np.float32) / 255
    known = int(classes or getattr(session.network, "classes", None) or 0)
    with kept_generators():
        criterion = build_criterion(session)
        module = build_network(session, inputs.shape[1:], known)
        criterion.suit(known)
        Flow(module, criterion, "try").dry_run(
            torch.from_numpy(inputs),
            torch.from_numpy(targets),
            known or None,
            network=name_of(session.network),
            loss=name_of(session.loss),
        )
