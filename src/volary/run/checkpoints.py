"""The checkpoints of a run: which there are, which are whole, and how one becomes visible in a single step."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import volary
from volary.errors import RunError
from volary.run.content import Content, StreamedFile
from volary.run.disk import Disk, open_regular, refusal

MANIFEST = "checkpoint.json"
ROSTER = "roster.json"  # how far the run is, in the words of volary.server.roster.roster
FORMAT = 2  # of what a checkpoint's files hold
_WRITTEN_BY = {1: "a volary 0.1.0 from before 22 November 2026"}  # formats that a manifest does not say the version of
_CHUNK_BYTES = 1 << 20
_NAME = re.compile(r"step-(\d{8,})|\.step-(\d{8,})-old")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # a file of a checkpoint: never a path


def digest(data: bytes) -> str:
    """The checksum that a manifest holds of a file."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Manifest:
    """What makes a checkpoint complete. files: checksum by name. metric: what `best` compares, if it was measured.

    format, volary: in which form it was written, and by which version.
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


class Checkpoints:
    """The folder of a run's checkpoints. A folder without a manifest is no checkpoint, whatever it holds.

    step-N is the checkpoint of step N; .step-N its draft; .step-N-old the one that it is about to replace, which
    counts for as long as step-N is not there; .step-N-gone one that is being removed.
    """

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder = folder
        self.disk = disk or Disk()

    def draft(self, step: int) -> Path:
        """Where the ranks write the checkpoint of `step` before it counts."""
        return self.folder / f".step-{step:08d}"

    def begin(self, step: int) -> Path:
        """Make an empty draft, and clear away what a killed save has left. Raises OSError."""
        for left in self.folder.glob(".step-*-old"):
            final = self.folder / left.name[1:].removesuffix("-old")
            if not final.exists():
                self.disk.rename(left, final)
        for left in self.folder.glob(".step-*"):
            self.disk.remove(left)
        draft = self.draft(step)
        draft.mkdir(parents=True)
        return draft

    def write(self, step: int, name: str, content: Content) -> str:
        """Write one file of the draft, synced; returns its checksum. Raises OSError, with bytes needed and free."""
        path, size_bytes = self.draft(step) / name, 0
        try:
            with self.disk.create(path) as file:
                streamed = StreamedFile(file)
                try:
                    streamed.take(content)
                finally:
                    size_bytes = streamed.size_bytes
            self.disk.sync(path)
        except OSError as error:
            # the half that was written is no part of what was free
            with contextlib.suppress(OSError):
                self.disk.remove(path)
            raise OSError(refusal(error, path, size_bytes)) from error
        return streamed.checksum

    def receive(self, step: int, name: str, pieces: Iterable[bytes]) -> str:
        """Write one file of the draft as it comes, synced; returns its checksum. Raises OSError."""
        if not _PLAIN.fullmatch(name):
            raise OSError(f"a checkpoint has no file {name!r}; accepted: letters, digits, '.', '_' and '-' alone")

        def all_of_it(file: StreamedFile) -> None:
            for piece in pieces:
                file.write(piece)

        return self.write(step, name, all_of_it)

    def give_up(self, step: int) -> None:
        """Remove the draft of a save that failed; what resists is removed by the next `begin`."""
        with contextlib.suppress(OSError):
            self.disk.remove(self.draft(step))

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> Path:
        """Make the draft a checkpoint: manifest last, then one rename. Raises OSError; then no older one is lost."""
        draft, final = self.draft(step), self.folder / f"step-{step:08d}"
        old = self.folder / f".step-{step:08d}-old"
        manifest = Manifest(step, world_size, dict(files), metric, FORMAT, volary.__version__)
        self.write(step, MANIFEST, _seal(manifest))
        self.disk.sync(draft)
        if final.exists():
            # a resumed run came by this step again, and the one that is there may be damaged
            self.disk.remove(old)
            self.disk.rename(final, old)
        self.disk.rename(draft, final)
        self.disk.sync(self.folder)
        self.disk.remove(old)
        return final

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, oldest first; not yet verified."""
        names = [_NAME.fullmatch(path.parent.name) for path in self.folder.glob(f"*/{MANIFEST}")]
        return sorted({int(name[1] or name[2]) for name in names if name})

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of `step`."""
        final, old = self.folder / f"step-{step:08d}", self.folder / f".step-{step:08d}-old"
        return old if not final.exists() and old.exists() else final

    def manifest(self, step: int) -> Manifest:
        """The manifest of the checkpoint of `step`. Raises RunError if it is missing or damaged."""
        path = self.path(step) / MANIFEST
        try:
            with open_regular(path) as file:
                found = _unseal(file.read())
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise RunError(f"{path}: not a readable manifest: {error}") from None
        if found.step != step:
            raise RunError(f"{path}: is of step {found.step}, not {step}; the folder was renamed or copied")
        for name in found.files:
            if not _PLAIN.fullmatch(name):
                raise RunError(f"{path}: names the file {name!r}; accepted: letters, digits, '.', '_' and '-' alone")
        return found

    def verify(self, step: int) -> Manifest:
        """Check every file of the checkpoint of `step` by checksum. Raises RunError naming the first bad one."""
        manifest = self.manifest(step)
        for name, expected in manifest.files.items():
            path = self.path(step) / name
            try:
                found = _digest_of(path)
            except OSError as error:
                raise RunError(f"{path}: cannot be read: {error.strerror}") from None
            if found != expected:
                raise RunError(f"{path}: damaged, its checksum is {found[:12]} and should be {expected[:12]}")
        return manifest

    def newest_whole(self) -> tuple[Manifest | None, list[str]]:
        """The newest checkpoint that is whole, if any, and a sentence for each newer one that is not."""
        warnings: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.verify(step), warnings
            except RunError as error:
                warnings.append(str(error))
        return None, warnings

    def take_up(self) -> tuple[Manifest | None, list[str]]:
        """What a run goes on from: as `newest_whole`, and damaged ones that are newer are set aside.

        Raises RunError if there are checkpoints and none is whole: nobody's work begins anew without being asked. So it
        does if that one is of another format.
        """
        manifest, warnings = self.newest_whole()
        newer = [step for step in self._without_manifest() if manifest is None or step > manifest.step]
        warnings += [f"{self.folder / f'step-{step:08d}' / MANIFEST}: missing" for step in newer]
        if manifest is None and warnings:
            raise RunError(
                f"{self.folder.parent}: none of its checkpoints is whole ({'; '.join(warnings)}); put a copy in their "
                f"place, or begin at step 0 with `volary resume {self.folder.parent} --anew`, which keeps them aside"
            )
        if manifest is not None:
            require_format(self.path(manifest.step), manifest)
            self.set_aside_after(manifest.step)
            warnings = [f"{text}; the checkpoint of step {manifest.step} is used" for text in warnings]
        return manifest, warnings

    def newest_measured(self) -> int | None:
        """The step of the newest checkpoint with a metric: it is given only to one that is better than all before."""
        for step in reversed(self.steps()):
            with contextlib.suppress(RunError):
                if self.manifest(step).metric is not None:
                    return step
        return None

    def set_aside_after(self, step: int) -> None:
        """Rename damaged checkpoints: by their number they would outlive the good ones that are still to come."""
        for damaged in {*self.steps(), *self._without_manifest()}:
            if damaged > step:
                path = self.path(damaged)
                aside = path.with_name(f"damaged-{path.name.lstrip('.')}")
                with contextlib.suppress(OSError):
                    self.disk.remove(aside)
                    self.disk.rename(path, aside)

    def prune(self, keep_last: int, keep: int | None) -> None:
        """Remove all but the newest `keep_last` checkpoints and that of step `keep`; one that resists stays."""
        for step in self.steps()[: -keep_last or None]:
            if step != keep:
                with contextlib.suppress(OSError):
                    self._prune(step)

    def keep(self, keep_last: int, *, keep_best: bool) -> None:
        """Remove all but the newest `keep_last` checkpoints, and that with the best metric where that is wanted."""
        self.prune(keep_last, self.newest_measured() if keep_best else None)

    def _without_manifest(self) -> list[int]:
        names = [_NAME.fullmatch(path.name) for path in self.folder.glob("step-*") if not (path / MANIFEST).exists()]
        return sorted((int(name[1]) for name in names if name), reverse=True)

    def _prune(self, step: int) -> None:
        # renamed first: what a killed removal leaves must not look like a checkpoint
        gone = self.folder / f".step-{step:08d}-gone"
        self.disk.remove(gone)
        self.disk.rename(self.path(step), gone)
        self.disk.sync(self.folder)
        self.disk.remove(gone)


def _seal(manifest: Manifest) -> bytes:
    text = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(msgspec.Raw(text), digest(text)))


def _unseal(data: bytes) -> Manifest:
    sealed = msgspec.json.decode(data, type=_Sealed)
    if digest(bytes(sealed.manifest)) != sealed.checksum:
        raise ValueError("damaged, its checksum differs")
    return msgspec.json.decode(sealed.manifest, type=Manifest)


def _digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def require_format(path: Path, manifest: Manifest) -> None:
    """Raise RunError for a checkpoint of another format, and say which version reads it."""
    if manifest.format != FORMAT:
        writer = _WRITTEN_BY.get(manifest.format) or f"volary {manifest.volary}"
        raise RunError(
            f"{path}: was written by {writer}, in format {manifest.format}; this volary {volary.__version__} reads "
            f"format {FORMAT}: go on with {writer}"
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
