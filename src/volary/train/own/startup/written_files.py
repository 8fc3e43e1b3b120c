"""Records which files the user's own code opens to write: the driver warns of one that several workers write."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from volary.errors.raised import owner, shown

if TYPE_CHECKING:
    from types import FrameType

    from volary.train.recording.recorder import Recorder

MOST_FILES = 100  # that a worker says
_SUMMARY = "events.out.tfevents."  # TensorBoard's files have names of their own, in a folder that is one run's
_watching: _Watching | None = None
_hooked = False  # Python never lets go of an audit hook


@contextmanager
def watched(recorder: Recorder, run: Path) -> Iterator[None]:
    """Meanwhile record each file outside the folder of the run that this process opens to write, and who opens it."""
    global _watching, _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)
    save = torch.save  # it opens files beside Python
    _watching = _Watching(recorder, run)
    torch.save = _noting(save)
    try:
        yield
    finally:
        torch.save, _watching = save, None


class _Watching:
    def __init__(self, recorder: Recorder, run: Path) -> None:
        self._recorder, self._run = recorder, run.resolve()
        self._noted = set[Path]()
        self._within = threading.local()  # a call of ours opens files, too

    def writes(self, file: Any) -> None:
        if len(self._noted) >= MOST_FILES or getattr(self._within, "now", False):
            return
        self._within.now = True
        try:
            path = Path(os.fsdecode(file)).resolve()
            if path.name.startswith(_SUMMARY):
                path = path.parent
            if path not in self._noted and not _is_nobodys(path) and not path.is_relative_to(self._run):
                self._say(path)
        finally:
            self._within.now = False

    def _say(self, path: Path) -> None:
        frame: FrameType | None = sys._getframe(3)  # of whoever opens it
        while frame is not None and (whose := owner(frame.f_code.co_filename)) != "":
            frame = None if whose == "volary" else frame.f_back
        if frame is not None:
            self._noted.add(path)
            self._recorder.writes(str(path), f"{shown(frame.f_code.co_filename)}:{frame.f_lineno}")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or _watching is None:
        return
    file, _, flags = arguments
    if isinstance(file, str | bytes) and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
        with contextlib.suppress(Exception):  # whoever opens a file is not to fail here
            _watching.writes(file)


def _noting(save: Any) -> Any:
    @functools.wraps(save)
    def watching(obj: Any, f: Any, *positional: Any, **named: Any) -> Any:
        if _watching is not None and isinstance(f, str | bytes | os.PathLike):
            _watching.writes(f)
        return save(obj, f, *positional, **named)

    return watching


def _is_nobodys(path: Path) -> bool:
    """Devices, and what libraries keep for all processes alike."""
    kept = (".", "__pycache__", "torchinductor")
    return path.parts[1] in ("dev", "proc", "sys") or any(part.startswith(kept) for part in path.parts)
