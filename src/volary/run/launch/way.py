"""The way to a run for machines that reach none of its addresses: one address and port, which `volary gate` opens."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from volary.errors import BadInput, RunError
from volary.run.disk import Disk, open_regular, replace_file
from volary.run.lock import RunLock, is_held

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory

RELAY = "relay:"  # before the token that `volary relay` prints
GUEST = "guest"  # the relay's service for those who come to a gate; its terms name the gate


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """host, port: where to connect. gate: which of those that meet at a relay there; empty: a gate itself is there.

    key: of the relay's. In an invitation it proves "guest/<gate>" alone.
    """

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    gate: str = ""
    key: bytes = b""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def words(self) -> str:
        """The kind of place that this is, and its address, for sentences."""
        return f"the {'relay' if self.key else 'gate'} at {self.address}"

    def __str__(self) -> str:
        return urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Way:
        """Read what `str` writes. Raises ValueError."""
        try:
            return msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None


def relay_of(token: str) -> Way:
    """The relay that a token of `volary relay` names. Raises BadInput."""
    if token.startswith(RELAY):
        with suppress(ValueError):
            found = Way.parse(token.removeprefix(RELAY))
            if found.key and not found.gate:
                return found
    raise BadInput(f"--relay is {token[:20]!r}...; accepted: the token that volary relay has printed")


def host_and_port(option: str, text: str) -> tuple[str, int]:
    """An address of a command's option. Raises BadInput unless it is HOST:PORT."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise BadInput(f"{option} is {text!r}; accepted: HOST:PORT, as in 10.0.1.5:7000")
    return host, int(port)


@contextmanager
def announced_way(directory: RunDirectory, way: Way) -> Iterator[None]:
    """Let invitations lead this way meanwhile. Raises RunError if another gate does so."""
    path, lock = _paths(directory)
    try:
        held = RunLock(lock).__enter__()
    except RunError:
        there = way_of(directory)
        raise RunError(
            f"{directory.path} has a gate already{f', at {there.address}' if there else ''}; accepted: volary invite, "
            "whose lines lead through it"
        ) from None
    try:
        try:
            replace_file(Disk(), path, str(way).encode(), mode=0o600)
        except OSError as error:
            raise RunError(f"{path}: cannot be written: {error.strerror}") from None
        yield
    finally:
        for one in (path, lock):
            with suppress(OSError):
                Disk().remove(one)
        held.release()


def way_of(directory: RunDirectory) -> Way | None:
    """The way through the gate that the run has at this moment, if it has one."""
    path, lock = _paths(directory)
    if not is_held(lock):
        return None
    try:
        with open_regular(path) as file:
            return Way.parse(file.read().decode())
    except (OSError, ValueError):
        return None


def _paths(directory: RunDirectory) -> tuple[Path, Path]:
    return directory.path / "gate", directory.path / "gate.lock"
