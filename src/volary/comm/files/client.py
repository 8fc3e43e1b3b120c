"""A process's end of the service "files": it sends what belongs into the run's directory, and reads from there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.comm.files.messages import (
    PIECE_BYTES,
    SERVICE,
    Answer,
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
    Role,
    SendFile,
    TakenUp,
    TakeUp,
)

CONNECT_TIMEOUT_S = 15.0
SEND_TIMEOUT_S = 60.0  # a driver that takes nothing for so long is stopped, or cut off
ANSWER_TIMEOUT_S = 300.0  # its disk takes what it takes

_Wanted = TypeVar("_Wanted")


class FileNotKept(OSError):
    """The driver has it all, and could not keep it: its disk is full, say."""


class FileClient:
    """One connection, for one thread at a time. All calls raise OSError for what does not arrive, and why.

    session: the text of the run's session file. given: other files that `get_given` has.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        welcome = self._receive(FilesWelcome, CONNECT_TIMEOUT_S)
        self.session, self.given = welcome.session, welcome.given

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        key: bytes,
        attempt_id: str,
        role: Role,
        number: int,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> Self:
        """Connect to the run at host:port. Raises VolaryError if nobody is there, or it is another run."""
        hello = msgspec.to_builtins(FilesHello(role, number))
        connection = Connection.open(host, port, key, SERVICE, hello, attempt_id, timeout_s, sealed=True)
        connection.send_timeout_s = SEND_TIMEOUT_S
        try:
            return cls(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close, and wake whoever waits. Harmless when repeated."""
        self._connection.close()

    def log(self, at: int, data: bytes) -> None:
        """Add to this process's log: `data`, from byte `at` of what it has printed."""
        self._send(LogPart(at, data))

    def send(
        self, of: Literal["draft", "checkpoint", "result"], data: bytes, checksum: str, step: int = 0, name: str = ""
    ) -> None:
        """Send a file; returns when it is on the driver's disk. See `SendFile`."""
        self._send(SendFile(of, len(data), checksum, step, name))
        view = memoryview(data)
        for at in range(0, len(data), PIECE_BYTES):
            self._send(view[at : at + PIECE_BYTES])
        self._answer(FileKept)

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """Let a checkpoint count, once all its files have come; returns when it does. files: checksum by name."""
        self._send(CommitFiles(step, world_size, dict(files), metric))
        self._answer(FileKept)

    def take_up(self) -> TakenUp:
        """Ask which checkpoint the run continues from."""
        self._send(TakeUp())
        return self._answer(TakenUp)

    def get(self, step: int, name: str, path: Path) -> str:
        """Write a file of a checkpoint to `path`; its checksum."""
        self._send(GetFile(step, name))
        return self._write(path)

    def get_given(self, name: str, path: Path) -> None:
        """Write one of the files that the run was given to `path`."""
        self._send(GetGiven(name))
        self._write(path)

    def _write(self, path: Path) -> str:
        left, found = self._answer(FileFollows).size, hashlib.sha256()
        with path.open("wb") as file:
            while left > 0:
                piece = self._receive(bytes, SEND_TIMEOUT_S)
                found.update(piece)
                file.write(piece)
                left -= len(piece)
        return found.hexdigest()

    def _send(self, message: Request | memoryview) -> None:
        try:
            self._connection.send(message)
        except ConnectionLost as error:
            raise OSError(f"the run's driver: {error}") from None

    def _answer(self, kind: type[_Wanted]) -> _Wanted:
        answer: Any = self._receive(Answer, ANSWER_TIMEOUT_S)  # type: ignore[arg-type]  # a union is no class
        if isinstance(answer, FileRefused):
            raise FileNotKept(answer.reason)
        if not isinstance(answer, kind):
            raise OSError(f"the run's driver answers with {type(answer).__name__}")
        return answer

    def _receive(self, kind: type[_Wanted], at_most_s: float) -> _Wanted:
        try:
            return msgspec.convert(self._connection.receive(at_most_s), kind)
        except TimeoutError:
            raise OSError(f"the run's driver has not answered for {at_most_s:.0f} s") from None
        except (ConnectionLost, BadFrame, msgspec.ValidationError) as error:
            raise OSError(f"the run's driver: {error}") from None
