"""The protocol of stores, wherever their tensors are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Key: TypeAlias = int | str


class Store(Protocol):
    """Tensors by key: text or a whole number from 0. Leave it with `with`, or `close`."""

    def init(self, key: Key, tensor: Tensor) -> None:
        """Give `key` its first values; the first who comes decides, for others nothing changes.

        Raises SettingError if the key has another shape or dtype already.
        """
        ...

    def push(self, key: Key, tensor: Tensor) -> None:
        """Push `tensor`, of the key's shape; returns once copied; several may be under way. Raises SettingError."""
        ...

    def pull(self, key: Key, out: Tensor | None = None) -> Tensor:
        """The values of `key` after all that this worker has pushed; in `out`, of the key's shape, or a new tensor.

        Raises SettingError, and PeerLost or ServerLost if what is waited for cannot come.
        """
        ...

    def close(self) -> None:
        """Let go of the store, once all that was pushed has arrived. Raises ServerLost if a server was lost before."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...
