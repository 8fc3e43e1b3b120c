"""Records that are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from volary.data.records.records import Bytes


class InHand:
    """Anything that gives bytes by index. name: what to call one in a message."""

    block, remote = 1, False

    def __init__(self, read: Callable[[int], Bytes], count: int, name: Callable[[int], str]) -> None:
        self._read, self._count, self._name = read, count, name

    def __len__(self) -> int:
        return self._count

    def name(self, index: int) -> str:
        return self._name(index)

    def fingerprint(self) -> None:
        """None, as records are in memory."""

    def expect(self, indices: Sequence[int]) -> None:
        pass

    def read(self, index: int) -> Bytes:
        return self._read(index)
