"""Chooses the device that a worker computes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.placement import Place
    from volary.session.spec import Strategy


def device_of(kind: str, place: Place) -> torch.device:
    """The device of the worker at a place."""
    return choose_device(kind, place.local_rank, place.beside or place.world_size, own=place.own_devices)


def choose_device(kind: str, local_rank: int, local_workers: int, *, own: bool = False) -> torch.device:
    """The device of a worker. Raises SettingError if `cuda` is asked for and there are too few devices.

    own: fewer than there are workers here may be devices that nobody else sees.
    """
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if own and 0 < found < local_workers:
        local_rank, local_workers = local_rank % found, found
    if kind == "cuda" and found < local_workers:
        raise SettingError(
            f"train.device is 'cuda' for {local_workers} worker{'s' * (local_workers > 1)} here, and {found} CUDA "
            "devices are found; accepted: cpu or auto, or fewer workers"
        )
    if kind == "cpu" or found < local_workers:
        return torch.device("cpu")
    return torch.device("cuda", local_rank)


def refuse_recovery_on(device: torch.device, strategy: Strategy) -> None:
    """Raise SettingError if workers of this strategy cannot go on without a lost one on such a device."""
    if device.type == "cuda" and strategy.recover == "memory":
        raise SettingError(
            "strategy.recover is memory, and training is on CUDA, where waits for a lost worker do not end; accepted: "
            "checkpoint, or train.device=cpu"
        )
