"""A decoder whose samples say which record they were made of."""

from __future__ import annotations

import numpy as np


class Digits:
    """Two bytes as an image of one row and two columns."""

    kind = "a number"

    def __call__(self, record: bytes, out: np.ndarray | None = None) -> np.ndarray:
        if not record:
            raise ValueError("it is empty")
        return np.frombuffer(record, dtype=np.uint8).reshape(1, 2, 1)

    def other(self, shape: tuple[int, ...], first: tuple[int, ...]) -> str:
        return f"is {shape}, the first {first}"

    def dropped(self) -> list[str]:
        return []
