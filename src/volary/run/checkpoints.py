"""The checkpoints of a run: which there are, which are whole, and which one a run continues from."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

import volary
from volary.errors import RunError
from volary.run.checkpoint_files.folder import MANIFEST, CheckpointFolder, digest, digest_of
from volary.run.checkpoint_files.store import kept_in
from volary.run.content import Content, StreamedFile
from volary.run.disk import Disk, open_regular

if TYPE_CHECKING:
    from volary.storage.remote_path import RemotePath

__all__ = ["MANIFEST", "Checkpoints", "Manifest", "digest"]

SHARED = "state.pt"  # what all workers hold alike, or what a loop of one's own has saved
ROSTER = "roster.json"  # how far the run is, in the words of volary.server.roster.roster
FORMAT = 2  # of what a checkpoint's files hold
_WRITTEN_BY = {1: "a volary 0.1.0 from before 22 November 2026"}  # formats that a manifest does not say the version of
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a file of a checkpoint: never a path


@dataclass(frozen=True)
class Manifest:
    """The manifest makes a checkpoint complete. files: checksum by name. metric: what `best` compares, if measured.

    format, volary: the form and the version that wrote it.
    """

    step: int
    world_size: int
    files: dict[str, str]
    metric: float | None = None
    format: int = 1
    volary: str = ""


@dataclass(frozen=True)
class _Sealed:
    manifest: msgspec.Raw
    checksum: str


class CheckpointFiles(Protocol):
    """The files of a run's checkpoints, in a folder or a store. A checkpoint counts as soon as its manifest is there.

    Whatever writes raises OSError, whatever reads RunError.
    """

    in_store: bool  # whether every machine of the run reaches it by itself

    def begin(self, step: int) -> None:
        """Make an empty draft, and clear away what a killed save has left."""
        ...

    def write(self, step: int, name: str, content: Content) -> str:
        """Write one file of the draft, which is safe when this returns its checksum."""
        ...

    def give_up(self, step: int) -> None:
        """Remove the draft, as far as it lets itself be removed."""
        ...

    def commit(self, step: int, manifest: bytes) -> Path | RemotePath:
        """Let the draft count, in the place of an older checkpoint of that step; where it is. No older one is lost."""
        ...

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, oldest first."""
        ...

    def without_manifest(self) -> list[int]:
        """Steps of which there was one that has lost its manifest, newest first."""
        ...

    def place(self, step: int) -> str:
        """The name of the checkpoint of `step` in messages."""
        ...

    def path(self, step: int) -> Path:
        """The folder on this machine where its files are read."""
        ...

    def manifest(self, step: int) -> bytes:
        """Read the manifest of `step`, as it was written."""
        ...

    def bring(self, step: int, name: str, checksum: str) -> None:
        """Have one of its files in `path(step)`, if it is not."""
        ...

    def missing(self, step: int, names: Iterable[str]) -> list[str]:
        """The files of the checkpoint that are not where they should be."""
        ...

    def set_aside(self, step: int) -> None:
        """Give it another name, by which it is no checkpoint."""
        ...

    def remove(self, step: int) -> None:
        """Remove it: what a killed removal leaves does not look like a checkpoint."""
        ...


class Checkpoints:
    """The checkpoints of a run. folder: where they are, or the address of a store (`kept_in`)."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder = folder
        self.files: CheckpointFiles = kept_in(folder) or CheckpointFolder(folder, disk or Disk())

    @property
    def in_store(self) -> bool:
        """Whether every machine of the run reaches them by itself."""
        return self.files.in_store

    def begin(self, step: int) -> None:
        """Make an empty draft, and clear away what a killed save has left. Raises OSError."""
        self.files.begin(step)

    def write(self, step: int, name: str, content: Content) -> str:
        """Write one file of the draft; returns its checksum. Raises OSError, of a disk with bytes needed and free."""
        return self.files.write(step, name, content)

    def receive(self, step: int, name: str, pieces: Iterable[bytes]) -> str:
        """Write one file of the draft as it comes; returns its checksum. Raises OSError."""
        if not _PLAIN.fullmatch(name):
            raise OSError(f"a checkpoint has no file {name!r}; accepted: letters, digits, '.', '_' and '-' alone")

        def all_of_it(file: StreamedFile) -> None:
            for piece in pieces:
                file.write(piece)

        return self.write(step, name, all_of_it)

    def give_up(self, step: int) -> None:
        """Remove the draft of a save that failed; what resists is removed by the next `begin`."""
        self.files.give_up(step)

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> Path | RemotePath:
        """Make the draft a checkpoint; where it is. Raises OSError; then no older one is lost. files: checksums."""
        manifest = Manifest(step, world_size, dict(files), metric, FORMAT, volary.__version__)
        return self.files.commit(step, _seal(manifest))

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, oldest first; not yet verified. Raises RunError if a store fails."""
        return self.files.steps()

    def path(self, step: int) -> Path:
        """The folder on this machine in which files of the checkpoint of `step` are read, once they were brought."""
        return self.files.path(step)

    def manifest(self, step: int) -> Manifest:
        """The manifest of the checkpoint of `step`. Raises RunError if it is missing or damaged."""
        place = f"{self.files.place(step)}/{MANIFEST}"
        try:
            found = _unseal(self.files.manifest(step))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise RunError(f"{place}: not a readable manifest: {error}") from None
        if found.step != step:
            raise RunError(f"{place}: is of step {found.step}, not {step}; the folder was renamed or copied")
        for name in found.files:
            if not _PLAIN.fullmatch(name):
                raise RunError(f"{place}: names the file {name!r}; accepted: letters, digits, '.', '_' and '-' alone")
        return found

    def bring(self, step: int, wanted: Callable[[str], bool] = lambda _: True) -> Manifest:
        """Have those files of a checkpoint on this machine that are wanted, by name. Raises RunError."""
        manifest = self.manifest(step)
        for name in filter(wanted, manifest.files):
            self.files.bring(step, name, manifest.files[name])
        return manifest

    def verify(self, step: int) -> Manifest:
        """Check every file of the checkpoint of `step` by checksum. Raises RunError naming the first bad one."""
        manifest = self.manifest(step)
        for name, expected in manifest.files.items():
            self.files.bring(step, name, expected)
            path = self.path(step) / name
            try:
                found = digest_of(path)
            except OSError as error:
                raise RunError(f"{path}: cannot be read: {error.strerror}") from None
            if found != expected:
                raise RunError(f"{path}: damaged, its checksum is {found[:12]} and should be {expected[:12]}")
        return manifest

    def missing(self, manifest: Manifest) -> list[str]:
        """Files of a checkpoint that are not where they should be. Raises RunError if a store fails."""
        return self.files.missing(manifest.step, manifest.files)

    def newest_whole(self) -> tuple[Manifest | None, list[str]]:
        """The newest checkpoint that is whole, if any, and a sentence for each newer one that is not."""
        whole, warnings = None, []
        for step in reversed(self.steps()):
            try:
                whole = self.verify(step)
                break
            except RunError as error:
                warnings.append(str(error))
        newer = [step for step in self.files.without_manifest() if whole is None or step > whole.step]
        return whole, warnings + [f"{self.files.place(step)}/{MANIFEST}: missing" for step in newer]

    def take_up(self) -> tuple[Manifest | None, list[str]]:
        """Take up the checkpoint that a run continues from: `newest_whole`; set newer, damaged ones aside.

        Raises RunError if there are checkpoints and none is whole: nobody's work begins anew without being asked. It
        also raises that if the checkpoint is of another format.
        """
        manifest, warnings = self.newest_whole()
        if manifest is None and warnings:
            raise self.none_whole(warnings)
        if manifest is not None:
            require_format(self.path(manifest.step), manifest)
            self.set_aside_after(manifest.step)
            warnings = [f"{text}; the checkpoint of step {manifest.step} is used" for text in warnings]
        return manifest, warnings

    def none_whole(self, warnings: Iterable[str]) -> RunError:
        """Make the error for checkpoints that are all damaged, as `warnings` say."""
        return RunError(
            f"{self.folder.parent}: none of its checkpoints is whole ({'; '.join(warnings)}); put a copy in their "
            f"place, or begin at step 0 with `volary resume {self.folder.parent} --anew`, which keeps them aside"
        )

    def newest_measured(self) -> int | None:
        """The step of the newest checkpoint with a metric: it is given only to one that is better than all before."""
        for step in reversed(self.steps()):
            with contextlib.suppress(RunError):
                if self.manifest(step).metric is not None:
                    return step
        return None

    def set_aside_after(self, step: int) -> None:
        """Rename damaged checkpoints: by their number they would outlive the good ones that are still to come."""
        for damaged in {*self.steps(), *self.files.without_manifest()}:
            if damaged > step:
                with contextlib.suppress(OSError):
                    self.files.set_aside(damaged)

    def prune(self, keep_last: int, keep: int | None) -> None:
        """Remove all but the newest `keep_last` checkpoints and that of step `keep`; one that resists stays."""
        for step in self.steps()[: -keep_last or None]:
            if step != keep:
                with contextlib.suppress(OSError):
                    self.files.remove(step)

    def keep(self, keep_last: int, *, keep_best: bool) -> None:
        """Remove all but the newest `keep_last` checkpoints, and that with the best metric where that is wanted."""
        with contextlib.suppress(RunError):  # a store that does not say what it has: the next save asks again
            self.prune(keep_last, self.newest_measured() if keep_best else None)


def _seal(manifest: Manifest) -> bytes:
    text = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(msgspec.Raw(text), digest(text)))


def _unseal(data: bytes) -> Manifest:
    sealed = msgspec.json.decode(data, type=_Sealed)
    if digest(bytes(sealed.manifest)) != sealed.checksum:
        raise ValueError("damaged, its checksum differs")
    return msgspec.json.decode(sealed.manifest, type=Manifest)


def require_format(path: Path, manifest: Manifest) -> None:
    """Raise RunError for a checkpoint of another format, and say which version reads it."""
    if manifest.format != FORMAT:
        writer = _WRITTEN_BY.get(manifest.format) or f"volary {manifest.volary}"
        raise RunError(
            f"{path}: was written by {writer}, in format {manifest.format}; this volary {volary.__version__} reads "
            f"format {FORMAT}: resume with {writer}"
        )


def read(path: Path, manifest: Manifest, name: str) -> bytes:
    """One file of a verified checkpoint. Raises RunError if it is not part of it."""
    if name not in manifest.files:
        raise RunError(f"{path}: the checkpoint has no {name}; it holds {', '.join(sorted(manifest.files))}")
    with open_regular(path / name) as file:
        return file.read()


def as_dict(manifest: Manifest) -> dict[str, Any]:
    """The manifest in plain values, for `--json`."""
    return {"step": manifest.step, "world_size": manifest.world_size, "metric": manifest.metric}
