"""The request for a prediction: plain values, which travel to workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Request:
    """Predict from `inputs`, a file or folder, with the checkpoint of `step` of the run at `run`.

    layer: the layer whose output is wanted; empty: the network's. overrides: settings in place of the run's.
    batch_size: of samples; 0: found by measuring. device: as `train.device`. own_loop: whether the
    run is one of a training loop of the user's own.
    """

    run: str
    step: int
    inputs: str
    layer: str = ""
    overrides: tuple[str, ...] = ()
    batch_size: int = 0
    device: str = "auto"
    own_loop: bool = False
