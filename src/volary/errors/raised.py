"""An error out of somebody's code, for the person who wrote that code: their file and line first, all else folded."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from volary.errors import BadInput

MOST_FRAMES = 12  # of the user's own: endless recursion has a thousand
MOST_TEXT_LINES = 8  # of the error's own text
# what Volary itself stands on: an error in it is none of code that a user has installed; a test compares pyproject.toml
LIBRARIES = (
    "torch",
    "numpy",
    "numba",
    "PIL",
    "safetensors",
    "msgspec",
    "ruamel",
    "click",
    "rich",
    "psutil",
    "fsspec",
    "cryptography",
    "simplejpeg",
    "starlette",
    "uvicorn",
)
_INSTALLED = ("site-packages", "dist-packages")
_OURS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Raised:
    """An exception in words, from the point of view of its user.

    place: the innermost frame of the user's own code, such as "my_net.py:15 in forward"; empty if none is theirs.
    error: type and first line of text. lines: the rest of the text, notes, the user's frames with their source (the
    innermost last), how many others were folded, and what it was caused by; without a frame of the user's the whole
    traceback.
    """

    place: str
    error: str
    lines: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The place and the error, in a line."""
        return f"{self.place}: {self.error}" if self.place else self.error

    @property
    def predicate(self) -> str:
        """The words after the name of whose code it was: "raised ValueError at my_net.py:15 in forward: its text"."""
        kind, _, text = self.error.partition(": ")
        at = f" at {self.place}" if self.place else ""
        return f"raised {kind}{at}" + (f": {text}" if text else "")


def raised(error: BaseException) -> Raised:
    """Read an exception and its traceback. Imports nothing, and never raises on behalf of the user's own objects."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if owner(frame.filename) == ""]
    if not own:
        # the user's code may be installed like any other package
        own = [frame for frame in frames if owner(frame.filename) not in ("volary", "python", *LIBRARIES)]
    place = f"{_at(own[-1])} in {own[-1].name}" if own else _place_of_syntax(error)
    first, *more = _text(error)
    if place and not own and isinstance(error, SyntaxError):
        first = f"{type(error).__name__}: {error.msg}"  # its text repeats the place
    if not own and not place:
        return Raised("", first, tuple("".join(traceback.format_exception(error)).rstrip().splitlines()))
    lines = [*more, *_shown(own), *_folded([frame for frame in frames if frame not in own])]
    return Raised(place, first, (*lines, *_causes(error)))


def owner(file: str) -> str:
    """The owner of a source file: "volary", "python" (its library), an installed package's name, or "": the user."""
    if file.startswith("<"):
        return "python"
    path = Path(file)
    if path.is_relative_to(_OURS):
        return "volary"
    parts = path.parts
    for folder in _INSTALLED:
        if folder in parts[:-1]:
            last = len(parts) - 1 - parts[::-1].index(folder)
            return parts[last + 1].removesuffix(".py")
    return "python" if any(path.is_relative_to(folder) for folder in _library()) else ""


@cache
def _library() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple({Path(paths[name]) for name in ("stdlib", "platstdlib")})


def _text(error: BaseException) -> list[str]:
    """Type and text of an error, and its notes; at least one line."""
    try:
        # the place, which Python puts behind a syntax error's text, is told apart
        text = str(error).strip()
    except Exception:
        text = "(its text cannot be read)"
    first, *more = text.splitlines() or [""]
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    name = type(error).__name__
    return [f"{name}: {first}" if first else name, *(line for line in more[:MOST_TEXT_LINES] if line.strip()), *notes]


def _at(frame: traceback.FrameSummary) -> str:
    return f"{shown(frame.filename)}:{frame.lineno}"


def shown(file: str) -> str:
    """A file as it is written from here: relative if it is in or below the current folder."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _place_of_syntax(error: BaseException) -> str:
    """A file that cannot be compiled has no frame."""
    if isinstance(error, SyntaxError) and error.filename and owner(error.filename) == "":
        return f"{shown(error.filename)}:{error.lineno}"
    return ""


def _shown(frames: list[traceback.FrameSummary]) -> list[str]:
    head = MOST_FRAMES // 3
    left_out = len(frames) - MOST_FRAMES
    lines: list[str] = []
    for number, frame in enumerate(frames):
        if left_out > 0 and head <= number < head + left_out:
            if number == head:
                lines.append(f"... {left_out} more of your frames")
            continue
        lines.append(f"{_at(frame)} in {frame.name}")
        if frame.line:
            lines.append(f"    {frame.line}")
    return lines


def _folded(frames: list[traceback.FrameSummary]) -> list[str]:
    if not frames:
        return []
    owners = sorted({owner(frame.filename) for frame in frames}, key=lambda name: (name != "volary", name))
    named = " and ".join([", ".join(owners[:-1]), owners[-1]] if len(owners) > 1 else owners)
    return [f"... {len(frames)} frame{'s' * (len(frames) > 1)} of {named}"]


def _causes(error: BaseException) -> list[str]:
    """A line for each exception that this one was raised from, or while handling which."""
    lines: list[str] = []
    seen = {id(error)}
    while True:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None or id(cause) in seen:
            return lines
        seen.add(id(cause))
        own = [frame for frame in traceback.extract_tb(cause.__traceback__) if owner(frame.filename) == ""]
        where = f"{_at(own[-1])} in {own[-1].name}: " if own else ""
        lines.append(f"{'caused by' if error.__cause__ else 'while handling'} {where}{_text(cause)[0]}")
        error = cause


@contextmanager
def sentences_of(called: str, kind: type[BadInput]) -> Iterator[None]:
    """Turn any exception of the user's code into one sentence, with their file and line.

    called: what to call the code, in the sentence. Raises `kind`.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        raise kind(f"{called} {raised(error).predicate}") from error
