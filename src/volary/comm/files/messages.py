"""Messages about files between a process and the driver. Names are those of a checkpoint's files, not paths."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

SERVICE = "files"
PIECE_BYTES = 2**20  # of a file that travel at once; they follow the message that announces them, as plain bytes

GIVEN = (
    "function.py",
    "arguments.pt",
    "checkpoints/address",
)  # in the run's directory: code and arguments of a loop of one's own, and in which store the checkpoints are

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Role = Literal["worker", "server"]


class FilesHello(Struct, frozen=True, forbid_unknown_fields=True):
    """Says whose files these are. number: a worker's rank, or a server's number."""

    role: Role
    number: Annotated[int, Meta(ge=0, le=2**31)]


class FilesWelcome(Struct, frozen=True):
    """session: the text of the run's session file. given: which of `GIVEN` there are."""

    session: str
    given: list[str]


class LogPart(Struct, frozen=True, tag=True):
    """Part of the log, from byte `at` of what was printed in this attempt. Not answered."""

    at: Count
    data: bytes


class SendFile(Struct, frozen=True, tag=True):
    """`size` bytes follow. of: the draft of a checkpoint that the driver opens itself; a checkpoint that its ranks
    write; or a result, which has no step and no name. Answered by `FileKept` or `FileRefused`.
    """

    of: Literal["draft", "checkpoint", "result"]
    size: Count
    checksum: str
    step: Count = 0
    name: str = ""


class CommitFiles(Struct, frozen=True, tag=True):
    """A checkpoint is these files, with these checksums; it counts when all are here. Answered as `SendFile`."""

    step: Count
    world_size: Count
    files: dict[str, str]
    metric: float | None


class TakeUp(Struct, frozen=True, tag=True):
    """Asks which checkpoint the run continues from. Answered by `TakenUp` or `FileRefused`."""


class GetFile(Struct, frozen=True, tag=True):
    """A file of a checkpoint. Answered by `FileFollows` and its bytes, or `FileRefused`."""

    step: Count
    name: str


class GetGiven(Struct, frozen=True, tag=True):
    """Asks for one of `GIVEN`. Answered as `GetFile`."""

    name: str


class FileKept(Struct, frozen=True, tag=True):
    """Says that the file is on the driver's disk, whole."""


class FileRefused(Struct, frozen=True, tag=True):
    """Reply: the file was not written, and why."""

    reason: str


class TakenUp(Struct, frozen=True, tag=True):
    """step: None if there is none. warnings: of newer ones that are damaged."""

    step: int | None
    warnings: list[str]


class FileFollows(Struct, frozen=True, tag=True):
    """Announces that `size` bytes of a file follow."""

    size: Count


Request = LogPart | SendFile | CommitFiles | TakeUp | GetFile | GetGiven
Answer = FileKept | FileRefused | TakenUp | FileFollows
