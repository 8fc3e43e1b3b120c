"""Millions of names in one buffer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Names:
    """Strings by their number. They cost their bytes and 8 more; reference counts do not copy them in each worker.

    text: all of them, one after the other. ends (n,): where each ends.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        given = list(texts)
        self.text = "".join(given).encode("utf-8", "surrogateescape")
        lengths = [len(text) for text in given]
        if sum(lengths) != len(self.text):  # not all of them are ASCII
            lengths = [len(text.encode("utf-8", "surrogateescape")) for text in given]
        self.ends = np.cumsum(lengths, dtype=np.int64)

    @classmethod
    def packed(cls, text: bytes, ends: NDArray[np.int64]) -> Names:
        """Make names of an earlier `text` and `ends`."""
        names = cls(())
        names.text, names.ends = text, ends
        return names

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        start = int(self.ends[index - 1]) if index else 0
        return self.text[start : int(self.ends[index])].decode("utf-8", "surrogateescape")
