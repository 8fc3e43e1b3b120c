"""Checkpoints in a store that fsspec reaches (s3://, gs://, hdfs://): it has no rename, so the manifest comes last."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from volary.errors import BadInput, RunError, SettingError
from volary.run.checkpoint_files.folder import MANIFEST, digest_of
from volary.run.content import Content, StreamedFile
from volary.run.disk import Disk, refusal

if TYPE_CHECKING:
    from volary.storage.remote_path import RemotePath

T = TypeVar("T")
ADDRESS = "address"  # a file in the folder of a run's checkpoints: the URL of the folder in a store where they are
CLAIM = "run.json"  # in that folder, from before the first step: whose it is
_NAME = re.compile(r"step-(\d{8,})(-b)?")


def kept_in(folder: Path) -> CheckpointsInStore | None:
    """The store that a run's folder of checkpoints names; None if they are in the folder. Raises SettingError."""
    try:
        url = (folder / ADDRESS).read_text(encoding="utf-8")
    except OSError:
        return None
    return CheckpointsInStore(url, folder)


class CheckpointsInStore:
    """`CheckpointFiles` in a folder of a store. folder: on this machine, where files are brought to be read.

    step-N holds the checkpoint of step N, and step-N-b one that is to take its place; a folder counts from the moment
    that its manifest is there, and is a draft, or the rest of one, without.
    """

    in_store = True

    def __init__(self, url: str, folder: Path) -> None:
        from volary.storage.remote_path import RemotePath  # fsspec takes its time

        self._root, self._folder = RemotePath.of(url, changes=True), folder

    def claim(self, run: Path) -> bool:
        """Take the folder for a new run, unless there is something. Raises BadInput if nothing can be written there."""
        try:
            if self._root.files():
                return False
            claim = {"run": str(run), "host": socket.gethostname()}
            (self._root / CLAIM).write_bytes(json.dumps(claim).encode())
        except (OSError, NotImplementedError) as error:
            raise BadInput(f"checkpoint.path: nothing can be written to {self._root}: {_why(error)}") from None
        return True

    def clear(self) -> None:
        """Remove all checkpoints, and the claim. What else somebody keeps there stays. Raises OSError."""
        for name in self._folders():
            if _NAME.fullmatch(name.removeprefix("damaged-")):
                (self._root / name).remove()
        (self._root / CLAIM).remove()

    def begin(self, step: int) -> None:
        """Remove what was read for an earlier attempt; then begin a draft."""
        for left in self._folder.glob("step-*"):
            Disk().remove(left)
        for name, files in self._folders().items():
            twin = name.removesuffix("-b")
            if _NAME.fullmatch(name) and (MANIFEST not in files or (twin != name and self._counts(twin))):
                (self._root / name).remove()

    def write(self, step: int, name: str, content: Content) -> str:
        """Write by way of a file on this machine, so that a call that fails can be made again."""
        with tempfile.TemporaryDirectory(prefix=".upload-", dir=self._folder) as folder:
            path = Path(folder, name)
            checksum = write_here(path, content)
            self.upload(step, path)
        return checksum

    def upload(self, step: int, path: Path) -> None:
        """Have a file of this machine in the draft, under its name. Its size is compared. Raises OSError."""
        (self._draft(step) / path.name).upload(path)

    def give_up(self, step: int) -> None:
        """Remove the draft; the next `begin` removes what resists."""
        with contextlib.suppress(OSError):
            self._draft(step).remove()

    def commit(self, step: int, manifest: bytes) -> RemotePath:
        """Manifest last; then the one that it replaces goes."""
        draft, older = self._draft(step), self._counting(step)
        (draft / MANIFEST).write_bytes(manifest)
        if older is not None:
            with contextlib.suppress(OSError):
                self._remove(older)
        return draft

    def steps(self) -> list[int]:
        """The steps of all folders with a manifest. Raises RunError."""
        found = self._read(self._folders)
        names = [_NAME.fullmatch(name) for name, files in found.items() if MANIFEST in files]
        return sorted({int(name[1]) for name in names if name})

    def without_manifest(self) -> list[int]:
        """A draft is not told from a checkpoint that has lost its manifest."""
        return []

    def place(self, step: int) -> str:
        return str(self._root / f"step-{step:08d}")

    def path(self, step: int) -> Path:
        """The path in the run's directory, beside the address."""
        return self._folder / f"step-{step:08d}"

    def manifest(self, step: int) -> bytes:
        there = self._read(lambda: self._counting(step))
        if there is None:
            raise RunError(f"{self.place(step)}: is no checkpoint")
        return self._read((there / MANIFEST).read_bytes)

    def bring(self, step: int, name: str, checksum: str) -> None:
        """Bring it under another name until it is whole: several processes may bring the same."""
        path = self.path(step) / name
        if path.is_file() and digest_of(path) == checksum:
            return
        there = self._read(lambda: self._counting(step))
        if there is None:
            raise RunError(f"{self.place(step)}: is no checkpoint any more")
        path.parent.mkdir(exist_ok=True)
        coming = path.with_name(f".{name}.{os.getpid()}-{threading.get_ident()}")
        try:
            self._read(lambda: (there / name).download(coming))
            if (found := digest_of(coming)) != checksum:
                raise RunError(f"{there / name}: damaged, its checksum is {found[:12]} and should be {checksum[:12]}")
            coming.replace(path)
        except OSError as error:
            raise RunError(f"{path}: cannot be written: {error.strerror or error}") from None
        finally:
            coming.unlink(missing_ok=True)

    def missing(self, step: int, names: Iterable[str]) -> list[str]:
        found = self._read(self._folders)
        there = next((found[name] for name in _names(step) if MANIFEST in found.get(name, ())), set())
        return [name for name in names if name not in there]

    def set_aside(self, step: int) -> None:
        there = self._counting(step)
        if there is not None:
            aside = self._root / f"damaged-step-{step:08d}"
            aside.remove()
            for name in there.files():
                (there / name).copy(aside / name)
            self._remove(there)
        shutil.rmtree(self.path(step), ignore_errors=True)

    def remove(self, step: int) -> None:
        """Remove the manifest first: what is half removed is no checkpoint."""
        for name in _names(step):
            self._remove(self._root / name)
        shutil.rmtree(self.path(step), ignore_errors=True)

    def _remove(self, there: RemotePath) -> None:
        (there / MANIFEST).remove()
        there.remove()

    def _draft(self, step: int) -> RemotePath:
        first, second = _names(step)
        return self._root / (second if self._counts(first) else first)

    def _counting(self, step: int) -> RemotePath | None:
        """The folder of the checkpoint of `step`, if there is one."""
        return next((self._root / name for name in _names(step) if self._counts(name)), None)

    def _counts(self, name: str) -> bool:
        return (self._root / name / MANIFEST).exists()

    def _folders(self) -> dict[str, set[str]]:
        """Folders with the names of the files in them."""
        found: dict[str, set[str]] = {}
        for path in self._root.files():
            folder, _, name = path.partition("/")
            found.setdefault(folder, set()).add(name)
        return found

    def _read(self, attempt: Callable[[], T]) -> T:
        try:
            return attempt()
        except OSError as error:
            raise RunError(f"checkpoints in {self._root} cannot be read: {_why(error)}") from None


def write_here(path: Path, content: Content) -> str:
    """Write a file of this machine that is to be uploaded; its checksum. Raises OSError, with bytes needed and free."""
    size_bytes = 0
    try:
        with path.open("wb") as file:
            streamed = StreamedFile(file)
            try:
                streamed.take(content)
            finally:
                size_bytes = streamed.size_bytes
    except OSError as error:
        # the half that was written is no part of what was free
        path.unlink(missing_ok=True)
        raise OSError(refusal(error, path, size_bytes)) from error
    return streamed.checksum


def writable(url: str) -> None:
    """Raise SettingError if nothing here can write to such a URL, as far as that is known without asking the store."""
    from volary.storage.remote_path import RemotePath

    try:
        RemotePath.of(url)
    except SettingError as error:
        raise SettingError(f"checkpoint.path: {error}") from None


def _names(step: int) -> tuple[str, str]:
    return f"step-{step:08d}", f"step-{step:08d}-b"


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
