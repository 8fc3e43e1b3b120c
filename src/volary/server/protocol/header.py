"""The fixed binary header before a tensor's bytes between worker and server. Nothing else is ever decoded."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from volary.comm.control.errors import BadFrame

MAGIC = b"Vs"
_LAYOUT = struct.Struct("<2sBBIIIQQQQ")
HEADER_BYTES = _LAYOUT.size
ALL_USED = 2**64 - 1  # a bit for each part that a slice may have
AVERAGED = 2**32 - 1  # for a snapshot: the newest values, with the averages in place of those that have some
NEWEST = 2**32 - 2  # likewise: the newest values, beside what the worker computes with


class MessageKind(IntEnum):
    """The kind of a message. Worker to server: PUSH, PULL, SET; server to worker: HELD, VALUES; both: REFUSED.

    PUSH: a contribution follows; HELD: it is held, and no death of one process loses it if all replicas say
    the same. PULL: asks for a slice of at least `version`; VALUES: here it is. SET: values for a slice that
    has none yet (the key-value store's `init`), answered by HELD. REFUSED: a sentence follows, of at most 1 KB.
    """

    PUSH = 1
    HELD = 2
    PULL = 3
    VALUES = 4
    SET = 5
    REFUSED = 6


class Form(IntEnum):
    """How the values behind a header are written.

    EXACT: as they are. ENCODED: a codec's frame. FACTORS: what multiplies to them. DIFFERENCE: the frame of what they
    differ by from what this connection brought last; of PULL: the worker still has that, else it wants them EXACT.
    """

    EXACT = 0
    ENCODED = 1
    FACTORS = 2
    DIFFERENCE = 3


_KINDS = {int(kind): kind for kind in MessageKind}
_FORMS = {int(form): form for form in Form}


class Header(NamedTuple):
    """The header of a message.

    worker: the contributor's number. slice: what of the parameters. clock: of the contribution; of a pull, which
    request it is, so that the answer can be told from others. version: of PUSH, of the values that the contribution was
    computed with; of PULL, the least that is wanted; of VALUES and HELD, that of the slice; of REFUSED, the kind that
    was refused. snapshot: 0, or the one that is asked for, or AVERAGED, or NEWEST. used: bit i: somebody used the
    slice's part i, so it has a gradient. length: bytes that follow.
    """

    kind: MessageKind
    slice: int
    worker: int = 0
    clock: int = 0
    version: int = 0
    form: Form = Form.EXACT
    snapshot: int = 0
    used: int = ALL_USED
    length: int = 0

    def pack(self) -> bytes:
        """The header as HEADER_BYTES bytes."""
        return _LAYOUT.pack(
            MAGIC,
            self.kind,
            self.form,
            self.worker,
            self.slice,
            self.snapshot,
            self.clock,
            self.version,
            self.used,
            self.length,
        )

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """The header in HEADER_BYTES bytes. Raises BadFrame if they are none."""
        try:
            magic, kind, form, worker, number, snapshot, clock, version, used, length = _LAYOUT.unpack(data)
            if magic != MAGIC:
                raise BadFrame("a message does not begin as ours do")
            return cls(_KINDS[kind], number, worker, clock, version, _FORMS[form], snapshot, used, length)
        except (struct.error, KeyError) as problem:
            raise BadFrame(f"a header is not readable: {problem}") from None
