"""Records that are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from volary.data.records.records import Bytes


class InHand:
    """Anything that gives bytes by index. where: what to call it in a message."""

    block, remote = 1, False

    def __init__(self, records: Sequence[Bytes] | Callable[[int], Bytes], count: int, where: str) -> None:
        self._read = records if callable(records) else records.__getitem__
        self._count, self._where = count, where

    def __len__(self) -> int:
        return self._count

    def name(self, index: int) -> str:
        return f"{self._where}: row {index}"

    def fingerprint(self) -> None:
        """They are in memory."""

    def expect(self, indices: Sequence[int]) -> None:
        pass

    def read(self, index: int) -> Bytes:
        return self._read(index)
