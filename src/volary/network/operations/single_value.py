"""A batch norm in training that gets one value a channel, of which there is no variance: torch raises a ValueError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from volary.naming import named_modules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ENOUGH_FOR_EACH = (
    "accepted: 2 samples or more for each worker (a larger data.batch_size, fewer strategy.workers, a smaller "
    "train.accumulate), or train.sync_batch_norm=true"
)


def single_value(error: BaseException) -> str:
    """The layer that `error` comes from, in words, if it is such a batch norm; else an empty string.

    It goes by the frames that the error came through, not by torch's words.
    """
    networks = list[nn.Module]()
    for frame in _frames(error):
        own = frame.f_locals.get("self")
        if not isinstance(own, nn.Module):
            continue
        networks.append(own)
        given = frame.f_locals.get("input")
        if isinstance(own, _BatchNorm) and isinstance(given, Tensor) and given.dim() > 1:
            names = (name for one in networks for name, part in named_modules(one) if part is own and name)
            single = own.training and given.numel() == given.shape[1]
            return f"{type(own).__name__} {next(names, '')}".strip() if single else ""
    return ""


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
