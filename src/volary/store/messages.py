"""Messages of a store's register: small and plain, over the keyed server. Tensors travel elsewhere.

The first message of a connection is its hello: a `StoreWorkerHello` or `StoreServerHello`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from volary.comm.control.errors import BadMessage
from volary.comm.control.sealing import Security
from volary.store.kinds import Count, TensorKind
from volary.store.settings import Mode

KEY_LETTERS = 512

Name: TypeAlias = Annotated[str, Meta(max_length=KEY_LETTERS)] | Count


class _StoreMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="message", tag=str.lower):
    pass


class StoredSlice(Struct, frozen=True, array_like=True):
    """Values `start` to `end` of a tensor, in its order: slice `number` of the store, kept by `server`."""

    number: int
    server: int
    start: int
    end: int


# How one introduces itself


class StoreWorkerHello(Struct, frozen=True, tag_field="is", tag="worker"):
    """The first message of a worker to the register. worker: which of the store's workers it is."""

    worker: int


class StoreServerHello(Struct, frozen=True, tag_field="is", tag="server"):
    """The first message of a server of the store to the register. number: which of the servers it is."""

    number: int


# A worker to the register


class Declare(_StoreMessage, frozen=True):
    """I have first values for `key`. Answered by Known, once others' are there if they came first, or Refused."""

    key: Name
    kind: TensorKind


class Filled(_StoreMessage, frozen=True):
    """The first values of `key` are held, as Known asked for."""

    key: Name


class Find(_StoreMessage, frozen=True):
    """Asks where `key` is. Answered by Known or Refused."""

    key: Name


class Goodbye(_StoreMessage, frozen=True):
    """I leave, and all that I pushed is held. pushes: how often, by the first slice of each key."""

    pushes: dict[int, Count]


# The register to a worker


class StoreWelcome(_StoreMessage, frozen=True, tag="welcome"):
    """number: of this worker in messages with tensors; never used twice. ports: of the servers, in their order."""

    number: int
    ports: list[int]
    mode: Mode
    workers: int
    security: Security


class Known(_StoreMessage, frozen=True):
    """Says where `key` is. fill: send its first values."""

    key: Name
    kind: TensorKind
    cuts: list[StoredSlice]
    fill: bool


class Refused(_StoreMessage, frozen=True):
    """Why not. key: None: the worker is not admitted, and the connection ends."""

    key: Name | None
    why: str


class Left(_StoreMessage, frozen=True):
    """A worker has gone. pushes: as in its Goodbye; None: it sent none."""

    worker: int
    pushes: dict[int, Count] | None


class Lost(_StoreMessage, frozen=True):
    """A server has gone, with all it kept."""

    why: str


# The register to a server


class AddSlices(_StoreMessage, frozen=True, tag="add"):
    """Expect the first values of these slices of `key`. Answered by Added. serial: of the key."""

    serial: int
    key: Name
    kind: TensorKind
    cuts: list[StoredSlice]


class Drop(_StoreMessage, frozen=True):
    """Forget slices that nobody has pushed to."""

    numbers: list[int]


# A server to the register


class Ready(_StoreMessage, frozen=True):
    """A server is ready. port: where it listens for workers."""

    port: int


class Added(_StoreMessage, frozen=True):
    """why: empty, or why it cannot be."""

    serial: int
    why: str


class Failed(_StoreMessage, frozen=True):
    """The server ends. bad_input: something that the user can mend is wrong."""

    why: str
    bad_input: bool


FromWorker: TypeAlias = Declare | Filled | Find | Goodbye
ToWorker: TypeAlias = StoreWelcome | Known | Refused | Left | Lost
ToServer: TypeAlias = AddSlices | Drop
FromServer: TypeAlias = Ready | Added | Failed


def decoded(message: Any, kinds: Any) -> Any:
    """A message as one of `kinds`. Raises BadMessage."""
    try:
        return msgspec.convert(message, kinds)
    except msgspec.ValidationError as problem:
        raise BadMessage(f"a store does not understand {str(message)[:80]!r}: {problem}") from None
