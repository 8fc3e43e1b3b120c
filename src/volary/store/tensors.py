"""Checks the tensors that users hand to a store before anything is done with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.store.kinds import MOST_NUMBER, TensorKind, why_not_again, why_not_kept
from volary.store.messages import KEY_LETTERS

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.channels.channel import Payload
    from volary.store.protocol import Key


def check_key(key: Key) -> None:
    """Raise SettingError if no store has such a key."""
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise SettingError(f"key is {key!r}; accepted: text, or a whole number")
    if not (len(key) <= KEY_LETTERS if isinstance(key, str) else 0 <= key <= MOST_NUMBER):
        raise SettingError(f"key is {str(key)[:40]!r}; accepted: up to {KEY_LETTERS} letters, or 0 to {MOST_NUMBER}")


def kind_of(key: Key, tensor: Tensor) -> TensorKind:
    """The kind of a tensor of any shape that `key` is to have. Raises SettingError for what no store keeps."""
    check_key(key)
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        raise SettingError(f"key {key!r}: a {type(tensor).__name__} was given; accepted: a dense torch tensor")
    kind = TensorKind(str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
    if why := why_not_kept(key, kind):
        raise SettingError(why)
    return kind


def require_same(key: Key, known: TensorKind, tensor: Tensor) -> None:
    """Raise SettingError unless `tensor` is of the kind that the key has: its shape and dtype."""
    if why := why_not_again(key, known, kind_of(key, tensor)):
        raise SettingError(why)


def empty(kind: TensorKind) -> Tensor:
    """A tensor of the shape and dtype of this kind, of any content."""
    return torch.empty(kind.shape, dtype=getattr(torch, kind.dtype))


def lies_plain(tensor: Tensor) -> bool:
    """Whether a tensor of any shape is value by value in memory that can be received into."""
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def as_bytes(tensor: Tensor) -> Payload:
    """The memory of a tensor of any shape that lies plain."""
    return tensor.detach().view(-1).view(torch.uint8).numpy().data
