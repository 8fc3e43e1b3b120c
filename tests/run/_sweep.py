"""Lets the n-th write, sync, rename or removal of an operation go wrong, for n = 1, 2, ... until none does.

Run as a program (`_sweep.py SUBJECT FOLDER`): it forks for every n, which a process that has torch's threads must not.
Prints how many cases there were; fails with a traceback at the first promise that was broken.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pickle
import shutil
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol, Self, cast

from volary.errors import VolaryError
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.disk import Disk
from volary.run.verdict import Verdict, read_verdict
from volary.train.saving.committing import Committing

if TYPE_CHECKING:
    from volary.train.state.drafts import Drafts

UNTOUCHED, DONE, FAILED, DIED = 0, 3, 4, 5  # nothing went wrong; the fault was survived; it was said; the end
# fail: nothing happens; torn: a write gets half way; die: the process ends there; cut: the power goes, and of what was
# not synced half is there; undone: as cut, and renames that were not synced did not happen either
MODES = ("fail", "torn", "die", "torn-die", "cut", "undone")


@dataclass
class FaultyDisk(Disk):
    """A disk whose n-th call goes wrong as `mode` says."""

    n: int = 0
    mode: str = "sound"
    calls: int = 0
    unsynced: set[Path] = field(default_factory=set)
    renames: list[tuple[Path, Path, Path | None]] = field(default_factory=list)

    def create(self, path: Path, mode: int = 0o644) -> BinaryIO:
        """A file, or one that goes wrong, with half of the data there if the mode is torn."""
        goes_wrong = self._is_the_one()
        if goes_wrong and "torn" not in self.mode:
            self._go_wrong()
        file = super().create(path, mode)
        self.unsynced.add(path)
        return cast("BinaryIO", _TornFile(file, self._go_wrong)) if goes_wrong else file

    def sync(self, path: Path) -> None:
        """Sync, or go wrong; nothing really waits for the machine's disk."""
        if self._is_the_one():
            self._go_wrong()
        assert path.exists()
        self.unsynced.discard(path)
        self.renames = [entry for entry in self.renames if entry[1].parent != path]

    def rename(self, old: Path, new: Path) -> None:
        """Rename, or go wrong; remembers how to take it back."""
        if self._is_the_one():
            self._go_wrong()
        kept = None
        if self.mode == "undone" and new.is_file():
            kept = new.with_name(f"{new.name}~kept")
            shutil.copy(new, kept)
        super().rename(old, new)
        self.renames.append((old, new, kept))
        self.unsynced = {new / path.relative_to(old) if path.is_relative_to(old) else path for path in self.unsynced}

    def remove(self, path: Path) -> None:
        """Remove, or go wrong with half of a folder removed."""
        if path.exists() and self._is_the_one():
            if path.is_dir():
                next(iter(sorted(path.iterdir(), reverse=True)), path / "none").unlink(missing_ok=True)
                if self.mode in ("fail", "torn"):
                    return  # as the real one: what cannot be removed stays
            self._go_wrong()
        super().remove(path)

    def _is_the_one(self) -> bool:
        self.calls += 1
        return self.calls == self.n

    def _go_wrong(self) -> NoReturn:
        self.cut()
        if self.mode in ("fail", "torn"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os._exit(DIED)

    def cut(self) -> None:
        """Lose what a machine without power loses, if the mode is about that."""
        if self.mode in ("cut", "undone"):
            for path in filter(Path.is_file, self.unsynced):
                os.truncate(path, path.stat().st_size // 2)
        if self.mode == "undone":
            for old, new, kept in reversed(self.renames):
                new.rename(old)
                if kept:
                    kept.rename(new)


@dataclass
class _TornFile:
    """Half of what is written is there, then it goes wrong."""

    file: BinaryIO
    go_wrong: Callable[[], NoReturn]

    def write(self, data: bytes) -> NoReturn:
        self.file.write(data[: len(data) // 2])
        self.file.close()
        self.go_wrong()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


class Subject(Protocol):
    """An operation to sweep over: what is there before, the operation, and what must be true after it."""

    def __init__(self, folder: Path) -> None: ...
    def prepare(self) -> None: ...
    def operate(self, disk: Disk) -> None: ...
    def check(self, done: bool) -> None: ...
    def check_again(self) -> None: ...


class Create:
    """Making a run: it is there whole, or its name is free."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"

    def prepare(self) -> None:
        """Nothing is there."""

    def operate(self, disk: Disk) -> None:
        """Make the run."""
        RunDirectory.create(self.folder, "mine", "stem", "network: lenet\n", disk)

    def check(self, done: bool) -> None:
        """Whole, or not there."""
        run = RunDirectory(self.folder / "mine")
        assert run.path.exists() or not done
        if run.path.exists():
            _check_run(run)

    def check_again(self) -> None:
        """A run can be made after it, and leftovers go."""
        for left in self.folder.glob(".new-*"):
            os.utime(left, (0, 0))
        _check_run(RunDirectory.create(self.folder, None, "mine", "network: lenet\n", FaultyDisk()))
        assert not [path for path in self.folder.iterdir() if path.name not in ("mine", "mine-1")]


def _check_run(run: RunDirectory) -> None:
    assert run.session.read_text() == "network: lenet\n"
    assert b"versions" in run.environment.read_bytes()
    assert len(run.key()) == 32
    assert run.checkpoints.is_dir()
    assert run.logs.is_dir()
    assert run.verdicts.is_dir()
    with RunReader(run) as reader:
        assert reader.state() == "new"


class Save:
    """Saving step 20 over one of step 10: the newest whole checkpoint is the one or the other."""

    old, new = 10, 20

    def __init__(self, folder: Path) -> None:
        self.checkpoints = Checkpoints(folder, FaultyDisk())

    def prepare(self) -> None:
        """An older checkpoint, whole."""
        self._save(self.checkpoints, self.old, b"old")

    def operate(self, disk: Disk) -> None:
        """Save the newer one and prune to two."""
        self._save(Checkpoints(self.checkpoints.folder, disk), self.new, b"new")

    def check(self, done: bool) -> None:
        """The old one or the new one, and all that count verify."""
        for step in self.checkpoints.steps():
            self.checkpoints.verify(step)
        found, warnings = self.checkpoints.newest_whole()
        assert not warnings, warnings
        assert found is not None
        assert found.step == self.new if done else found.step in (self.old, self.new)
        self._check(found.step)

    def check_again(self) -> None:
        """The next save works, and nothing but checkpoints is left."""
        self._save(self.checkpoints, 30, b"new")
        self._check(30)
        assert self.checkpoints.steps()[-1] == 30
        assert not list(self.checkpoints.folder.glob(".*")), list(self.checkpoints.folder.iterdir())

    def _save(self, checkpoints: Checkpoints, step: int, content: bytes) -> None:
        checkpoints.begin(step)
        files = {f"rank-{rank}.pt": bytes([rank]) + content * 500 for rank in range(2)}
        sums = {name: checkpoints.write(step, name, data) for name, data in files.items()}
        checkpoints.commit(step, 2, sums, metric=0.5)
        checkpoints.prune(keep_last=2, keep=None)

    def _check(self, step: int) -> None:
        contents = [path.read_bytes()[1:] for path in self.checkpoints.path(step).glob("rank-*")]
        assert contents in ([b"old" * 500] * 2, [b"new" * 500] * 2), "files of two saves in one checkpoint, or of one"
        assert self.checkpoints.verify(step).world_size == 2


class SaveAgain(Save):
    """Saving step 10 where there is one of step 10 already, which is the only one."""

    new = 10


class Prune(Save):
    """Saving the third of which two are kept: a checkpoint that is being removed is none."""

    def prepare(self) -> None:
        """Two older checkpoints."""
        self._save(self.checkpoints, 5, b"old")
        self._save(self.checkpoints, self.old, b"old")


class SaveTogether(Save):
    """The same by two ranks, each its file, of which the `faulty` one goes wrong; the other lives on."""

    faulty = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lives, self.living = os.pipe()  # written to by nobody; open for as long as a rank lives

    def operate(self, disk: Disk) -> None:
        """Save step 20 together."""
        mine, theirs = socket.socketpair()
        if os.fork() == 0:
            mine.close()
            with contextlib.suppress(OSError):
                self._rank(1 - self.faulty, theirs, FaultyDisk())
            os._exit(0)
        theirs.close()
        self._rank(self.faulty, mine, disk)

    def check(self, done: bool) -> None:
        """As of one process, once both have ended."""
        os.close(self.living)
        os.read(self.lives, 1)  # there is never one
        os.close(self.lives)
        super().check(done)

    def _rank(self, rank: int, other: socket.socket, disk: Disk) -> None:
        drafts = _DraftsOf(Checkpoints(self.checkpoints.folder, disk), leads=rank == 0)
        with other.makefile("rwb") as stream:

            def gather(value: Any) -> list[Any]:
                pickle.dump(value, stream)
                stream.flush()
                try:
                    theirs = pickle.load(stream)
                except EOFError:
                    raise ConnectionError("the other rank has gone") from None
                return [value, theirs] if rank == 0 else [theirs, value]

            content = bytes([rank]) + b"new" * 500
            writing = Committing(cast("Drafts", drafts), gather, leads=rank == 0)
            if failure := writing.write(self.new, lambda: iter([(f"rank-{rank}.pt", content)]), 0.5):
                raise OSError(failure)


class SaveTogetherSecond(SaveTogether):
    """The same, if the rank that does not make it count goes wrong."""

    faulty = 1


@dataclass
class _DraftsOf:
    """See `volary.train.state.drafts.DirectoryDrafts`, which needs torch."""

    checkpoints: Checkpoints
    leads: bool

    def begin(self, step: int) -> None:
        if self.leads:
            self.checkpoints.begin(step)

    def write(self, step: int, name: str, content: bytes) -> str:
        return self.checkpoints.write(step, name, content)

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        if self.leads:
            self.checkpoints.commit(step, world_size, files, metric)
            self.checkpoints.prune(keep_last=2, keep=None)

    def give_up(self, step: int) -> None:
        self.checkpoints.give_up(step)


class Judge:
    """A worker's verdict over that of its earlier attempt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """The earlier attempt's."""
        Verdict(rank=1, outcome="stopped", step=7, attempt=0).write(self.folder, FaultyDisk())

    def operate(self, disk: Disk) -> None:
        """Write the new attempt's."""
        Verdict(rank=1, outcome="finished", step=9, attempt=1, reason="all done").write(self.folder, disk)

    def check(self, done: bool) -> None:
        """One of the two, whole."""
        old, new = read_verdict(self.folder, 1, attempt=0), read_verdict(self.folder, 1, attempt=1)
        assert (old is None) != (new is None)
        assert new is not None or not done
        assert old is None or old.step == 7
        assert new is None or new.reason == "all done"

    def check_again(self) -> None:
        """The next one can be written, and nothing else is left."""
        Verdict(rank=1, outcome="finished", step=11, attempt=2).write(self.folder, FaultyDisk())
        found = read_verdict(self.folder, 1, attempt=2)
        assert found is not None
        assert found.step == 11
        assert [path.name for path in self.folder.iterdir()] == ["rank-1.json"]


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "create": Create,
    "save": Save,
    "save-again": SaveAgain,
    "prune": Prune,
    "save-together": SaveTogether,
    "save-together-second": SaveTogetherSecond,
    "verdict": Judge,
}


def sweep(subject: Callable[[Path], Subject], folder: Path, mode: str) -> int:
    """The number of calls that the operation makes; every one of them has gone wrong once."""
    for n in itertools.count(1):
        place = folder / f"{mode}-{n}"
        place.mkdir()
        case = subject(place)
        case.prepare()
        status = _in_a_child(case, FaultyDisk(n, mode))
        for kept in place.rglob("*~kept"):
            kept.unlink()
        try:
            case.check(done=status in (UNTOUCHED, DONE))
            case.check_again()
        except BaseException:
            print(f"{mode} at call {n} broke a promise; {place} ended with {status}", file=sys.stderr)
            raise
        if status == UNTOUCHED:
            return n - 1
    raise AssertionError("unreachable")


def _in_a_child(case: Subject, disk: FaultyDisk) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            case.operate(disk)
            disk.cut()
            status = UNTOUCHED if disk.calls < disk.n else DONE
        except (OSError, VolaryError):
            status = FAILED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (UNTOUCHED, DONE, FAILED, DIED), f"ended with {status}"
    return status


if __name__ == "__main__":
    print([sweep(SUBJECTS[sys.argv[1]], Path(sys.argv[2]), mode) for mode in MODES])
