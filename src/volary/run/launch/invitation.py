"""An invitation to a run that is under way: one line, with which a machine that sees no folder of it can join.

The line holds where the run meets and a key of its own, made of the run's key and the invitation's terms (`key_of`). So
the run's server needs no list of invitations, nobody can change the terms, and whoever has the line can do nothing but
join by them.
"""

from __future__ import annotations

import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

import msgspec

from volary.errors import BadInput
from volary.run.launch.meeting import Meeting
from volary.run.launch.way import Way

SERVICE = "invitation"  # of the run's server
PREFIX = "volary:"
MOST_WORKERS = 1024
_TERMS = re.compile(r"([0-9a-f]{16})\.([0-9]{1,4})\.([0-9]{1,12})")


class Terms(msgspec.Struct, frozen=True):
    """number: of the invitation. workers: how many may join by it, in all. until: seconds since 1970."""

    number: str
    workers: int
    until: int

    @classmethod
    def made(cls, workers: int, valid_s: float) -> Terms:
        """The terms of a new invitation, from now on for `valid_s` seconds."""
        return cls(secrets.token_hex(8), workers, int(time.time() + valid_s))

    @classmethod
    def parse(cls, text: str) -> Terms | None:
        """Read what `str` writes; None if it is no such text."""
        found = _TERMS.fullmatch(text)
        return cls(found[1], int(found[2]), int(found[3])) if found else None

    def __str__(self) -> str:
        return f"{self.number}.{self.workers}.{self.until}"

    @property
    def expired(self) -> str:
        """A sentence that it has expired; empty if it has not."""
        if time.time() <= self.until:
            return ""
        then = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.until))
        return f"the invitation has expired, at {then}; accepted: a new one, by volary invite"


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """run: its directory's path, on the driver's machine. folder: the driver's working directory. job: of a worker.

    way: to the run, if it has a gate.
    """

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    attempt: int
    attempt_id: str
    run: str
    folder: str
    job: str
    terms: str
    key: bytes
    way: Way | None = None

    @property
    def meeting(self) -> Meeting:
        """Where the run meets."""
        return Meeting(self.host, self.port, self.attempt, self.attempt_id)

    @property
    def service(self) -> str:
        """The service with its terms, which `key` proves."""
        return f"{SERVICE}/{self.terms}"

    def line(self) -> str:
        """One word of letters, digits, '-' and '_' after its prefix."""
        return PREFIX + urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, line: str) -> Invitation:
        """Read what `line` writes. Raises BadInput if it is no whole invitation, or has expired."""
        text = line.removeprefix(PREFIX)
        try:
            found = msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.MsgspecError):
            found = None
        terms = Terms.parse(found.terms) if found else None
        if found is None or terms is None:
            raise BadInput(f"{line[:20]}... is no whole invitation; accepted: the word that volary invite has printed")
        if terms.expired:
            raise BadInput(terms.expired)
        return found
