"""A store in this process, for one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from volary.errors import SettingError
from volary.store.kinds import unknown
from volary.store.tensors import kind_of, require_same
from volary.store.updater import SliceRule, Updater

if TYPE_CHECKING:
    from torch import Tensor

    from volary.store.kinds import TensorKind
    from volary.store.protocol import Key


class InProcessStore:
    """A `volary.store.protocol.Store`. Each push is an update, as in a served store of one worker."""

    def __init__(self, updater: Updater, whole: bool) -> None:
        self._updater, self._whole = updater, whole or updater.whole
        self._kept: dict[Key, tuple[TensorKind, Tensor, SliceRule]] = {}

    def init(self, key: Key, tensor: Tensor) -> None:
        kind = kind_of(key, tensor)
        if key in self._kept:
            require_same(key, self._kept[key][0], tensor)
            return
        self._updater.check(key, tensor.dtype)
        values = tensor.detach().cpu().contiguous().clone()
        shape = tuple(kind.shape) if self._whole else (kind.size,)
        self._kept[key] = kind, values, SliceRule(self._updater, key, shape)

    def push(self, key: Key, tensor: Tensor) -> None:
        _, values, rule = self._find(key, tensor)
        rule.change(tensor.detach().cpu().contiguous().clone().view(-1), values.view(-1))

    def pull(self, key: Key, out: Tensor | None = None) -> Tensor:
        _, values, _ = self._find(key, out)
        if out is None:
            return values.clone()
        out.detach().copy_(values)
        return out

    def close(self) -> None:
        self._kept.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, key: Key, tensor: Tensor | None) -> tuple[TensorKind, Tensor, SliceRule]:
        if key not in self._kept:
            raise SettingError(unknown(key))
        if tensor is not None:
            require_same(key, self._kept[key][0], tensor)
        return self._kept[key]
