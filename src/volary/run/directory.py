"""A run is a directory: this is its map, and the one way to make a new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from pathlib import Path

import msgspec

from volary.errors import BadInput, RunError, VolaryError
from volary.errors.raised import shown
from volary.run.checkpoint_files.store import ADDRESS, CheckpointsInStore, kept_in
from volary.run.database.journal import Journal
from volary.run.disk import Disk, open_regular
from volary.run.lock import RunLock, is_held
from volary.session.values.run_name import check_name

KEY_BYTES = 32
MEETING = "meeting.json"
_LEFT_AFTER_S = 3600
_FOLDERS = ("checkpoints", "logs", "verdicts", "results")
_CHECKPOINTS = ("step-*", ".step-*", "damaged-*", MEETING)  # all that a run has in a folder elsewhere


class RunDirectory:
    """Names the files of the run at `path`. Nothing is read or made until asked."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.session = self.path / "session.yaml"
        self.environment = self.path / "environment.json"
        self.database = self.path / "run.sqlite"
        self.checkpoints = self.path / "checkpoints"
        self.logs = self.path / "logs"
        self.verdicts = self.path / "verdicts"
        self.results = self.path / "results"
        self.arguments = self.path / "arguments.pt"
        self.meeting = self.path / MEETING
        self.launch = self.path / "launch"
        self.job = self.path / "job.json"
        self.batch = self.path / "job.sh"
        self.queue = self.path / "queue.json"

    @property
    def folders(self) -> list[Path]:
        """The folders that every run has, by which a run without its database is recognised."""
        return [self.path / name for name in _FOLDERS]

    def written_once(self) -> list[Path]:
        """The files that are written before the run starts, and that it cannot be resumed without."""
        names = ("session.yaml", "environment.json", "key", "function.py", "arguments.pt", f"checkpoints/{ADDRESS}")
        return [path for name in names if (path := self.path / name).is_file()]

    @property
    def name(self) -> str:
        """The run's name, which is its folder's."""
        return self.path.name

    @property
    def argument(self) -> str:
        """The RUN to type in the current folder: its name if it is in `runs/` here, else its path."""
        path = Path(shown(str(self.path)))
        return path.name if path.parent == Path("runs") else str(path)

    def log(self, rank: int) -> Path:
        """The file to which rank `rank` prints."""
        return self.logs / f"worker-{rank}.log"

    def server_log(self, number: int) -> Path:
        """The file to which server `number` of a run with parameter servers prints."""
        return self.logs / f"server-{number}.log"

    def key(self) -> bytes:
        """The run's key, readable by its owner alone. Raises RunError if it is missing."""
        try:
            return bytes.fromhex((self.path / "key").read_text())
        except (OSError, ValueError) as error:
            raise self.unreadable(self.path / "key", error) from None

    def unreadable(self, file: Path, error: OSError | ValueError) -> RunError:
        """Make the error for a missing or damaged `file` of this run: it says so, and what to do."""
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        return RunError(f"{file} cannot be read ({reason}); put the run's own {file.name} there")

    def lock(self) -> RunLock:
        """Held by the one driver that writes this run."""
        return RunLock(self.path / "lock")

    def is_live(self) -> bool:
        """Whether a driver writes this run at this moment."""
        return is_held(self.path / "lock")

    def is_queued(self) -> bool:
        """Whether the queue of a machine has this run, and has it here: not one that was moved or copied since."""
        try:
            with open_regular(self.queue) as file:
                there = msgspec.json.decode(file.read(), type=_Queued).run
            return there == str(self.path) or Path(there).samefile(self.path)
        except (OSError, ValueError, msgspec.MsgspecError):
            return False

    @classmethod
    def existing(cls, path: Path | str, folder: Path | str = "runs") -> RunDirectory:
        """The run at `path`, or the one of that name in `folder`. Raises RunError, naming what was looked for."""
        for candidate in (Path(path), Path(folder) / path):
            if is_run(candidate):
                return cls(candidate)
        raise RunError(
            f"no run at {path} and none called {str(path)!r} in {folder}/; `volary runs` lists what there is"
        )

    @classmethod
    def all_in(cls, folder: Path) -> list[RunDirectory]:
        """The runs in `folder`, by name; those that are still being made are left out."""
        return [cls(path) for path in sorted(folder.glob("[!.]*")) if is_run(path)]

    @classmethod
    def all_below(cls, folder: Path) -> list[RunDirectory]:
        """The runs in `folder`, and those in its folders that are no runs themselves, such as those of a sweep."""
        folders = [path for path in sorted(folder.glob("[!.]*")) if path.is_dir() and not is_run(path)]
        return [*cls.all_in(folder), *(run for inner in folders for run in cls.all_in(inner))]

    @classmethod
    def create(
        cls,
        folder: Path,
        name: str | None,
        stem: str,
        session_yaml: str,
        disk: Disk | None = None,
        checkpoints: Path | str | None = None,
    ) -> RunDirectory:
        """Make a new run in `folder`: whole, or not at all. Raises RunError, and VolaryError if the machine forbids it.

        name: taken as it is, and refused (RunError) if it exists; None: `stem` with the first free number. checkpoints:
        a folder in which the run's checkpoints have one of the run's name, to which a link leads, or, as text, the URL
        of one in a store (BadInput if nothing can be written there); None: they are in the run's directory.
        """
        disk = disk or Disk()
        if name is not None:
            check_name("run.name", name)
        draft = folder / f".new-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _clear(disk, folder)
            _fill(disk, draft, session_yaml)
            if isinstance(checkpoints, Path):
                _make(checkpoints)
            return cls(_publish(disk, draft, folder, name, stem, checkpoints))
        except (RunError, BadInput):
            raise
        except (FileExistsError, NotADirectoryError) as error:
            raise RunError(f"no run can be made in {folder}: {error.strerror or error}") from error
        except (OSError, VolaryError) as error:  # no space, no permission
            reason = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{draft}/")
            raise VolaryError(f"no run can be made in {folder}: {reason or error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)


class _Queued(msgspec.Struct):
    run: str  # of what `volary.jobs.entry.QueueEntry` has


def exists_already(path: Path) -> RunError:
    """Make the error for a run that is to have the place of another one."""
    how = f"volary resume {RunDirectory(path).argument}"
    return RunError(f"the run {path} exists already; choose another run.name, or resume it: {how}")


def is_run(path: Path) -> bool:
    """Whether `path` is a run: by its database, or, of a run that has lost it, by its folders."""
    return (path / "run.sqlite").is_file() or all((path / part).is_dir() for part in _FOLDERS)


def _clear(disk: Disk, folder: Path) -> None:
    # what a process left that was killed while it made or removed a run, which takes seconds
    for draft in (*folder.glob(".new-*"), *folder.glob(".gone-*")):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > _LEFT_AFTER_S:
                discard(disk, draft)


def _fill(disk: Disk, draft: Path, session_yaml: str) -> None:
    from volary.run.machine.environment import environment  # asks the package records, which takes its time

    draft.mkdir(mode=0o700)  # all else in it has the usual modes: who may pass here is said once
    for part in _FOLDERS:
        (draft / part).mkdir()
    disk.write(draft / "session.yaml", session_yaml.encode())
    facts = msgspec.json.format(msgspec.json.encode(environment(Path.cwd())), indent=2)
    disk.write(draft / "environment.json", facts)
    disk.write(draft / "key", secrets.token_bytes(KEY_BYTES).hex().encode(), mode=0o600)
    Journal(draft / "run.sqlite").close()
    for file in sorted(draft.iterdir()):
        disk.sync(file)
    disk.sync(draft)


def _publish(
    disk: Disk, draft: Path, folder: Path, name: str | None, stem: str, checkpoints: Path | str | None
) -> Path:
    number = 1
    while True:
        path = folder / (name or f"{stem}-{number}")
        there = _below(checkpoints, path.name)
        if not path.exists() and _taken(disk, draft / "checkpoints", path, there):
            try:
                disk.rename(draft, path)
            except OSError:
                _give_back(draft)
                # lost a race for the name: a folder with content is never replaced
                if not path.exists():
                    raise
            else:
                disk.sync(folder)
                return path
        if name is not None and path.exists():
            raise exists_already(path)
        if name is not None:
            raise RunError(f"{there}, where checkpoint.path has the run's, exists already; choose another run.name")
        number += 1


def _make(checkpoints: Path) -> None:
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"checkpoint.path: {checkpoints} cannot be made: {error.strerror}") from None


def _below(checkpoints: Path | str | None, name: str) -> Path | str | None:
    if isinstance(checkpoints, str):
        return f"{checkpoints.rstrip('/')}/{name}"
    return checkpoints and checkpoints.absolute() / name


def _taken(disk: Disk, own: Path, run: Path, there: Path | str | None) -> bool:
    """Whether the place of the checkpoints of `run` was free; `own`, in its draft, names it then. None: it is `own`."""
    if there is None:
        return True
    if isinstance(there, Path):
        return _linked(disk, own, there)
    disk.write(own / ADDRESS, there.encode())
    return CheckpointsInStore(there, own).claim(run)


def _give_back(draft: Path) -> None:
    own = draft / "checkpoints"
    if own.is_symlink():
        own.resolve().rmdir()
    elif (store := kept_in(own)) is not None:
        store.clear()


def _linked(disk: Disk, link: Path, there: Path) -> bool:
    """Whether the folder `there` could be made, to which `link` leads then. Raises VolaryError if it cannot be had."""
    try:
        there.mkdir(mode=0o700)
    except FileExistsError:
        return False
    except OSError as error:
        raise VolaryError(f"checkpoint.path: {there} cannot be made: {error.strerror}") from None
    disk.remove(link)
    link.symlink_to(there)
    return True


def discard(disk: Disk, path: Path) -> None:
    """Remove what was a run, and its checkpoints where they are elsewhere: there only what is named as they are.

    Raises OSError if a store fails; what is on this machine is gone then, too.
    """
    link = path / "checkpoints"
    store = None if path.is_symlink() else kept_in(link)
    if link.is_symlink() and not path.is_symlink():
        for pattern in _CHECKPOINTS:
            for one in link.glob(pattern):
                disk.remove(one)
        with contextlib.suppress(OSError):  # somebody keeps something else there
            link.resolve().rmdir()
    disk.remove(path)
    if store is not None:
        store.clear()
