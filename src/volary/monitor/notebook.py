"""The view of a run in a notebook: its curves, redrawn in the cell that trains it."""

from __future__ import annotations

import base64
import html
import sys
import time
from collections.abc import Sequence
from importlib import import_module

from volary.errors import BadInput
from volary.monitor.digest import Digest
from volary.monitor.ended.closing import closing
from volary.monitor.figure import figure, png
from volary.monitor.terminal.plain import progress, title
from volary.monitor.wording import starting_in, trouble

REDRAW_S = 2.0  # a figure takes tenths of a second, in the process that watches the run


def in_notebook() -> bool:
    """Whether this process is the kernel of one."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


class Notebook:
    """Draws into the output of the cell that is running. Without matplotlib there is only text."""

    def __init__(self) -> None:
        self._drawn_at = float("-inf")
        self._handle = import_module("IPython.display").DisplayHandle()
        self._handle.display(_Cell("the run is starting", b""))

    def show(self, digest: Digest) -> None:
        """Redraw, if that was not done just now."""
        if time.monotonic() - self._drawn_at >= REDRAW_S:
            now = starting_in(digest.starting, digest.attempt_s) or progress(digest)
            self._draw(digest, [now, *(f"warning: {trouble(event)}" for event in digest.warnings)])

    def say(self, lines: Sequence[str]) -> None:
        print(*lines, sep="\n", flush=True)

    def end(self, digest: Digest) -> None:
        """The whole of it, and the last words."""
        self._draw(digest, [f"{label:<9} {text}" for label, text in closing(digest, drawn=True)])

    def close(self) -> None:
        """Do nothing: what was drawn stays."""

    def _draw(self, digest: Digest, lines: list[str]) -> None:
        self._drawn_at = time.monotonic()
        try:
            picture = png(figure([digest.directory], ())) if digest.step else b""
        except BadInput:  # no matplotlib
            picture = b""
        self._handle.update(_Cell("\n".join([title(digest), *lines]), picture))


class _Cell:
    def __init__(self, text: str, picture: bytes) -> None:
        self._text, self._picture = text, picture

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        image = f'<img src="data:image/png;base64,{base64.b64encode(self._picture).decode()}">' if self._picture else ""
        return f"<pre>{html.escape(self._text)}</pre>{image}"
