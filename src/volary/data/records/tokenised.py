"""Text files as numbers in a file, made once: whoever comes first makes it, and the others wait and map it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volary.data.formats.bpe import Bpe
from volary.data.formats.text_file import read_text
from volary.data.records.records import hashed
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

END = "<end of document>"
_FORM = 1  # of the files; another one is made anew


@dataclass(frozen=True, eq=False)
class Tokenised:
    """symbols (n,): of all documents, each with its end, the last symbol that there is. starts (documents + 1,): where
    each begins, and the end. classes: how many symbols there are. vocabulary: of characters, in order, the end last.
    """

    symbols: NDArray[np.unsignedinteger]
    starts: NDArray[np.int64]
    classes: int
    vocabulary: tuple[str, ...]

    @classmethod
    def of(cls, files: Sequence[Path], folder: Path, merges: Place | None, accepted: str) -> Tokenised:
        """The tokens of `files`, kept in `folder`; they are made unless files and merges are as they were.

        Raises DataError for a file that is no text in UTF-8, and if the folder cannot be written.
        """
        known = _fingerprint(files, merges)
        with _locked(folder):
            if _read_facts(folder).get("fingerprint") != known:
                _write(files, folder, merges, accepted, known)
            facts = _read_facts(folder)
            symbols = np.memmap(folder / "symbols.bin", dtype=_kind(facts["classes"]), mode="r")
            starts = np.load(folder / "starts.npy", allow_pickle=False)
        return cls(symbols, starts, facts["classes"], tuple(facts["vocabulary"]))


def _fingerprint(files: Sequence[Path], merges: Place | None) -> str:
    """A digest of names, sizes and times of change."""
    status = [(path, path.stat()) for path in files]
    stamp = "\n".join(f"{path}\t{one.st_size}\t{one.st_mtime_ns}" for path, one in status)
    return hashed(f"{_FORM}", stamp, b"" if merges is None else merges.read_bytes())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let nobody else of this machine read or write there meanwhile."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("ab")
    except OSError as problem:
        raise DataError(f"{folder}: cannot be written ({problem.strerror}); accepted: a folder for tokens") from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _kind(classes: int) -> type[np.unsignedinteger]:
    return np.uint16 if classes <= 2**16 else np.uint32


def _write(files: Sequence[Path], folder: Path, merges: Place | None, accepted: str, known: str) -> None:
    """Write symbols and starts; what says that they are whole comes last."""
    (folder / "tokens.json").unlink(missing_ok=True)
    if merges is None:
        letters = sorted({letter for path in files for letter in read_text(path, accepted)})
        numbers = {letter: number for number, letter in enumerate(letters)}
        vocabulary, classes = [*letters, END], len(letters) + 1

        def encode(text: str) -> Sequence[int]:
            return [numbers[letter] for letter in text]
    else:
        coder = Bpe(merges)
        vocabulary, classes, encode = [], len(coder) + 1, coder.encode
    kind, starts = _kind(classes), np.zeros(len(files) + 1, dtype=np.int64)
    try:
        with (folder / "symbols.part").open("wb") as out:
            for number, path in enumerate(files):
                document = np.array([*encode(read_text(path, accepted)), classes - 1], dtype=kind)
                starts[number + 1] = starts[number] + len(document)
                document.tofile(out)
        (folder / "symbols.part").rename(folder / "symbols.bin")  # who maps the ones before keeps them
        np.save(folder / "starts.npy", starts)
        facts = {"fingerprint": known, "classes": classes, "vocabulary": vocabulary}
        (folder / "tokens.part").write_text(json.dumps(facts), encoding="utf-8")
        (folder / "tokens.part").rename(folder / "tokens.json")
    except OSError as problem:
        raise DataError(f"{folder}: cannot be written ({problem.strerror}); accepted: a folder for tokens") from problem
