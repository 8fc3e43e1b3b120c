"""A state of nested plain values and tensors in one run of bytes; see `volary.train.state.skeleton`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import torch

from volary.train.state.skeleton import blank, put_together, taken_apart

if TYPE_CHECKING:
    from torch import Tensor

_LINE_BYTES = 64  # everything begins where any type may
_HEAD_BYTES = 8  # how long the plain values are


def packed(state: Any, into: Tensor) -> Tensor:
    """Copy `state` into the bytes of `into`, (bytes,), or if there is no room into new memory; return that.

    Raises RunError for what neither JSON nor tensors can carry.
    """
    plain, tensors = taken_apart(state)
    head = msgspec.json.encode(plain)
    size = _line(_HEAD_BYTES + len(head)) + sum(_line(one.nbytes) for one in tensors)
    if size > into.numel():
        into = torch.empty(size, dtype=torch.uint8)
    into[:_HEAD_BYTES].view(torch.int64)[0] = len(head)
    into[_HEAD_BYTES : _HEAD_BYTES + len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    for place, one in zip(_places(into, len(head), tensors), tensors, strict=True):
        place.copy_(one.detach())
    return into


def unpacked(values: Tensor) -> Any:
    """The state in these bytes, (bytes,), whose tensors are in their memory."""
    length = int(values[:_HEAD_BYTES].view(torch.int64)[0])
    plain = msgspec.json.decode(bytes(values[_HEAD_BYTES : _HEAD_BYTES + length].numpy()))
    return put_together(plain, _places(values, length, blank(plain)))


def _places(values: Tensor, head: int, like: list[Tensor]) -> list[Tensor]:
    found, at = list[torch.Tensor](), _line(_HEAD_BYTES + head)
    for one in like:
        found.append(values[at : at + one.nbytes].view(one.dtype).view(one.shape))
        at += _line(one.nbytes)
    return found


def _line(size: int) -> int:
    return -(-size // _LINE_BYTES) * _LINE_BYTES
