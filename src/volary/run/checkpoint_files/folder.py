"""Checkpoints in a folder: a draft becomes one in a single rename."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from volary.run.content import Content, StreamedFile
from volary.run.disk import Disk, open_regular, refusal

MANIFEST = "checkpoint.json"
_CHUNK_BYTES = 1 << 20
_NAME = re.compile(r"step-(\d{8,})|\.step-(\d{8,})-old")


def digest(data: bytes) -> str:
    """The checksum that a manifest holds of a file."""
    return hashlib.sha256(data).hexdigest()


def digest_of(path: Path) -> str:
    """The same of a file on this machine. Raises OSError."""
    found = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


class CheckpointFolder:
    """`CheckpointFiles` in a folder. One without a manifest is no checkpoint, whatever it holds.

    step-N is the checkpoint of step N; .step-N its draft; .step-N-old the one that it is about to replace, which
    counts for as long as step-N is not there; .step-N-gone one that is being removed.
    """

    in_store = False

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder, self._disk = folder, disk

    def begin(self, step: int) -> None:
        """An older one that was about to be replaced counts again. Raises OSError, also where the folder has gone."""
        if not (run := self._folder.parent).is_dir():  # it must not come back with nothing but checkpoints
            raise FileNotFoundError(f"{run} has gone: somebody moved or removed it while the run trained; move it back")
        for left in self._folder.glob(".step-*-old"):
            final = self._folder / left.name[1:].removesuffix("-old")
            if not final.exists():
                self._disk.rename(left, final)
        for left in self._folder.glob(".step-*"):
            self._disk.remove(left)
        self._draft(step).mkdir(parents=True)

    def write(self, step: int, name: str, content: Content) -> str:
        """Synced. Raises OSError, with bytes needed and free."""
        path, size_bytes = self._draft(step) / name, 0
        try:
            with self._disk.create(path) as file:
                streamed = StreamedFile(file)
                try:
                    streamed.take(content)
                finally:
                    size_bytes = streamed.size_bytes
            self._disk.sync(path)
        except OSError as error:
            # the half that was written is no part of what was free
            with contextlib.suppress(OSError):
                self._disk.remove(path)
            raise OSError(refusal(error, path, size_bytes)) from error
        return streamed.checksum

    def give_up(self, step: int) -> None:
        """Remove the draft; the next `begin` removes what resists."""
        with contextlib.suppress(OSError):
            self._disk.remove(self._draft(step))

    def commit(self, step: int, manifest: bytes) -> Path:
        """Write the manifest last, then rename once."""
        draft, final = self._draft(step), self._folder / f"step-{step:08d}"
        old = self._folder / f".step-{step:08d}-old"
        self.write(step, MANIFEST, manifest)
        self._disk.sync(draft)
        if final.exists():
            # a resumed run came by this step again, and the one that is there may be damaged
            self._disk.remove(old)
            self._disk.rename(final, old)
        self._disk.rename(draft, final)
        self._disk.sync(self._folder)
        self._disk.remove(old)
        return final

    def steps(self) -> list[int]:
        names = [_NAME.fullmatch(path.parent.name) for path in self._folder.glob(f"*/{MANIFEST}")]
        return sorted({int(name[1] or name[2]) for name in names if name})

    def without_manifest(self) -> list[int]:
        """A rename is done or is not: what has a checkpoint's name had a manifest."""
        names = [_NAME.fullmatch(path.name) for path in self._folder.glob("step-*") if not (path / MANIFEST).exists()]
        return sorted((int(name[1]) for name in names if name), reverse=True)

    def place(self, step: int) -> str:
        return str(self.path(step))

    def path(self, step: int) -> Path:
        final, old = self._folder / f"step-{step:08d}", self._folder / f".step-{step:08d}-old"
        return old if not final.exists() and old.exists() else final

    def manifest(self, step: int) -> bytes:
        """Read the manifest, if it is no link and no device."""
        with open_regular(self.path(step) / MANIFEST) as file:
            return file.read()

    def bring(self, step: int, name: str, checksum: str) -> None:
        """Do nothing: it is in this folder already."""

    def missing(self, step: int, names: Iterable[str]) -> list[str]:
        return [name for name in names if not (self.path(step) / name).is_file()]

    def set_aside(self, step: int) -> None:
        path = self.path(step)
        aside = path.with_name(f"damaged-{path.name.lstrip('.')}")
        self._disk.remove(aside)
        self._disk.rename(path, aside)

    def remove(self, step: int) -> None:
        """Rename it first: what is half removed has no checkpoint's name."""
        gone = self._folder / f".step-{step:08d}-gone"
        self._disk.remove(gone)
        self._disk.rename(self.path(step), gone)
        self._disk.sync(self._folder)
        self._disk.remove(gone)

    def _draft(self, step: int) -> Path:
        return self._folder / f".step-{step:08d}"
