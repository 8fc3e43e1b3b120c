"""The output of a user's own program on rank 0, read from its log while it runs."""

from __future__ import annotations

from pathlib import Path

from volary.run.log import VERDICT_BELOW

MOST_BYTES = 1 << 20  # at one look


class Printed:
    """Follows a log from `begin` on, in bytes, up to where Volary itself says why the worker ended."""

    def __init__(self, log: Path, begin: int = 0) -> None:
        self._log, self._read = log, begin
        self._rest = ""
        self._over = False

    def lines(self, *, last: bool = False) -> list[str]:
        """Return the lines that have become whole since the last call. last: and what there is of an unfinished one."""
        if self._over:
            return []
        with self._log.open("rb") as file:
            file.seek(self._read)
            data = file.read(MOST_BYTES)
        self._read += len(data)
        *whole, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        if last and self._rest:
            whole, self._rest = [*whole, self._rest], ""
        if VERDICT_BELOW in whole:
            self._over = True
            whole = whole[: whole.index(VERDICT_BELOW)]
        return [_final(line) for line in whole]


def _final(line: str) -> str:
    """A line as a terminal shows it in the end: a progress bar goes back to its beginning again and again."""
    return line.rstrip("\r").rpartition("\r")[2]
