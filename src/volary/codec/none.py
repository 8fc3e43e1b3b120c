"""No codec: values travel as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Full precision: what is sent is what was computed."""

    summable: ClassVar[bool] = True

    def frame_bytes(self, numel: int, itemsize: int) -> int:
        """Bytes on the wire for `numel` values of `itemsize` bytes each: all of them."""
        return numel * itemsize


CODEC = Exact
