"""The driver's end of the service "files": what comes goes into the run's directory, and nowhere else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, BadMessage, ConnectionLost
from volary.comm.control.frames import decode_as
from volary.comm.control.service import Guest, Reception
from volary.comm.files.messages import (
    GIVEN,
    PIECE_BYTES,
    CommitFiles,
    FileFollows,
    FileKept,
    FileRefused,
    FilesHello,
    FilesWelcome,
    GetFile,
    GetGiven,
    LogPart,
    Request,
    SendFile,
    TakenUp,
    TakeUp,
)
from volary.errors import RunError
from volary.run.checkpoints import MANIFEST, Checkpoints, digest
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file

if TYPE_CHECKING:
    from volary.storage.remote_path import RemotePath

QUIET_S = 86_400.0  # of a connection without files: its process, or the network, ends it before
STALLED_S = 60.0  # a checkpoint of which nothing more comes for so long is given up
SEND_TIMEOUT_S = 60.0

_log = logging.getLogger(__name__)

Notify = Callable[[str, int, dict[str, Any]], None]


class FileReceiver:
    """A thread for each process that has something to send.

    counts: called when a checkpoint has come to count: removes those that are no longer kept. notify: called with the
    kind, step and data of an event. Both from any thread.
    """

    def __init__(self, directory: RunDirectory, counts: Callable[[Checkpoints], None], notify: Notify) -> None:
        self._directory, self._counts, self._notify = directory, counts, notify
        self._incoming = IncomingCheckpoint(Checkpoints(directory.checkpoints))
        self._log_starts: dict[FilesHello, int] = {}
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, Connection] = {}
        self.reception = Reception(self._take)

    def close(self) -> None:
        """Cut all connections; returns when nothing is written any more."""
        self._incoming.end()
        with self._lock:
            threads = dict(self._threads)
        for thread, connection in threads.items():
            connection.close()
            thread.join()

    def _take(self, guest: Guest) -> None:
        try:
            who = decode_as(guest.hello, FilesHello)
        except BadFrame as problem:
            raise BadMessage(str(problem)) from None
        connection = Connection.taken_over(guest, SEND_TIMEOUT_S)
        thread = threading.Thread(target=self._attend, args=(connection, who), name="volary-files", daemon=True)
        with self._lock:
            self._threads[thread] = connection
        try:
            thread.start()
        except RuntimeError as problem:  # the system gives no thread now: whoever has the key tries again
            with self._lock:
                del self._threads[thread]
            raise BadMessage(str(problem)) from None

    def _attend(self, connection: Connection, who: FilesHello) -> None:
        try:
            with self._lock:
                start = self._log_starts.setdefault(who, _size(self._log_of(who)))
            given = [name for name in GIVEN if (self._directory.path / name).exists()]
            connection.send(FilesWelcome(self._directory.session.read_text(), given))
            while True:
                self._answer(connection, who, start, msgspec.convert(connection.receive(QUIET_S), Request))
        except (ConnectionLost, TimeoutError):
            pass  # it has ended
        except (BadFrame, msgspec.ValidationError, OSError) as problem:
            _log.warning("files of %s %d: %s", who.role, who.number, problem)
        finally:
            connection.close()
            with self._lock:
                self._threads.pop(threading.current_thread(), None)

    def _answer(self, connection: Connection, who: FilesHello, start: int, request: Request) -> None:
        match request:
            case LogPart(at, data):
                _write_at(self._log_of(who), start + at, data)
            case SendFile():
                self._receive(connection, who, request)
            case CommitFiles():
                self._commit(connection, request)
            case TakeUp():
                self._take_up(connection)
            case GetFile(step, name):
                self._send(connection, lambda: self._saved(step, name))
            case GetGiven(name):
                self._send(connection, lambda: self._given(name))

    def _log_of(self, who: FilesHello) -> Path:
        return self._directory.log(who.number) if who.role == "worker" else self._directory.server_log(who.number)

    def _receive(self, connection: Connection, who: FilesHello, coming: SendFile) -> None:
        pieces = _Pieces(connection, coming.size)
        try:
            match coming.of:
                case "result":
                    data = b"".join(pieces)
                    _require(digest(data), coming.checksum)
                    replace_file(Disk(), self._directory.results / f"rank-{who.number}.pt", data)
                case "draft":
                    _require(self._incoming.checkpoints.receive(coming.step, coming.name, pieces), coming.checksum)
                case "checkpoint":
                    self._incoming.add(coming.step, coming.name, coming.checksum, pieces)
        except OSError as error:
            for _ in pieces:  # what comes after it must be understood
                pass
            connection.send(FileRefused(str(error)))
            return
        connection.send(FileKept())

    def _commit(self, connection: Connection, wanted: CommitFiles) -> None:
        started = time.perf_counter()
        try:
            path = self._incoming.commit(wanted.step, wanted.world_size, wanted.files, wanted.metric)
        except OSError as error:
            connection.send(FileRefused(str(error)))
            return
        seconds = time.perf_counter() - started
        self._notify("checkpoint", wanted.step, {"step": wanted.step, "path": str(path), "seconds": seconds})
        self._counts(self._incoming.checkpoints)
        connection.send(FileKept())

    def _take_up(self, connection: Connection) -> None:
        try:
            manifest, warnings = self._incoming.checkpoints.take_up()
        except RunError as error:
            connection.send(FileRefused(str(error)))
            return
        connection.send(TakenUp(None if manifest is None else manifest.step, warnings))

    def _saved(self, step: int, name: str) -> BinaryIO:
        checkpoints = self._incoming.checkpoints
        if name != MANIFEST and name not in checkpoints.manifest(step).files:
            raise RunError(f"the checkpoint of step {step} has no {name}")
        return open_regular(checkpoints.path(step) / name)

    def _given(self, name: str) -> BinaryIO:
        if name not in GIVEN:
            raise RunError(f"the run has no {name} to give")
        return open_regular(self._directory.path / name)

    def _send(self, connection: Connection, opened: Callable[[], BinaryIO]) -> None:
        try:
            file = opened()
        except (RunError, OSError) as error:
            connection.send(FileRefused(str(error)))
            return
        with file:
            connection.send(FileFollows(file.seek(0, 2)))
            file.seek(0)
            while piece := file.read(PIECE_BYTES):
                connection.send(piece)


class IncomingCheckpoint:
    """The one checkpoint that ranks are sending, each of them its files. For several threads at once."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self._step: int | None = None
        self._sums: dict[str, str] = {}
        self._failure = ""
        self._moved_at = 0.0
        self._over = ""
        self._changed = threading.Condition()

    def end(self) -> None:
        """Let nobody wait for files any more."""
        with self._changed:
            self._over = "the run has ended before all of the checkpoint's files had come"
            self._changed.notify_all()

    def add(self, step: int, name: str, checksum: str, pieces: Iterator[bytes]) -> None:
        """Write a file of the checkpoint of `step`. Raises OSError: then it will not count."""
        try:
            self._begin(step)
            _require(self.checkpoints.receive(step, name, self._seen(pieces)), checksum)
        except OSError as error:
            with self._changed:
                self._failure = self._failure or str(error)
                self._changed.notify_all()
            raise
        with self._changed:
            self._sums[name] = checksum
            self._changed.notify_all()

    def commit(self, step: int, world_size: int, files: dict[str, str], metric: float | None) -> Path | RemotePath:
        """Wait until all files have come, and let them count; where it is then. Raises OSError: nothing is left."""
        self._begin(step)
        try:
            with self._changed:
                while self._sums.items() < files.items() and not (self._failure or self._over):
                    left_s = self._moved_at + STALLED_S - time.monotonic()
                    if left_s <= 0:
                        raise OSError(f"checkpoint of step {step}: nothing more has come for {STALLED_S:.0f} s")
                    self._changed.wait(left_s)
                if reason := self._failure or (self._sums != files and self._over):
                    raise OSError(reason)
                if self._sums != files:
                    raise OSError(f"checkpoint of step {step}: {sorted(self._sums)} have come, not {sorted(files)}")
            return self.checkpoints.commit(step, world_size, files, metric)
        except OSError:
            self.checkpoints.give_up(step)
            raise
        finally:
            with self._changed:
                self._step = None
                self._changed.notify_all()

    def _begin(self, step: int) -> None:
        """Have a draft of `step`; one of another step is finished before, or given up."""
        with self._changed:
            while self._step not in (None, step) and not self._over:
                left_s = self._moved_at + STALLED_S - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            if self._step != step:
                self.checkpoints.begin(step)
                self._step, self._sums, self._failure = step, {}, ""
                self._moved_at = time.monotonic()

    def _seen(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._moved_at = time.monotonic()
            yield piece


class _Pieces:
    """The bytes that follow a message, as they come. Raises ConnectionLost if they do not."""

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection, self._left = connection, size

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._left <= 0:
            raise StopIteration
        piece = msgspec.convert(self._connection.receive(STALLED_S), bytes)
        self._left -= len(piece)
        return piece


def _require(found: str, expected: str) -> None:
    if found != expected:
        raise OSError(f"it was changed on its way: its checksum is {found[:12]} and should be {expected[:12]}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _write_at(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(at)
        file.write(data)
