"""How workers that a launcher started find their run: rank 0 opens it and posts where, the others read that.

The launcher's own store (torchrun's agent keeps one, a lab's ranks share a file) only carries an address. It outlives
the workers and still holds a dead life's entry, whose server may even linger; so the entry is read again until it leads
to a server that has a place for this rank. The key never goes that way: it lies in the run directory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from volary.errors import BadInput, PeerLost, VolaryError
from volary.placement import Place
from volary.placement._file_board import FileBoard
from volary.run.directory import RunDirectory
from volary.session.spec import Session
from volary.train.process import Membership

MEET_TIMEOUT_S = 120.0
AGAIN_S = 0.1
ENTRY = "volary/meet"  # JSON: where the run's server listens, and which run it is
RUN = "volary/run"  # a run to go on with, instead of a new one


@contextmanager
def meet(place: Place, session_file: Path, overrides: Sequence[str]) -> Iterator[Membership]:
    """Be a member of the run of `session_file`. Raises BadInput, and PeerLost if nobody opens the run in time."""
    overrides = [*overrides, f"strategy.workers={place.world_size}"]
    session = Session.read(session_file, overrides)
    board = _board(place)
    if place.rank == 0:
        with _hosted(session_file, overrides, place, board) as member:
            yield replace(member, session=session)
    else:
        yield replace(_found(place, board), session=session)


@contextmanager
def _hosted(session_file: Path, overrides: list[str], place: Place, board: Any) -> Iterator[Membership]:
    """Rank 0: have the run made, or gone on with after an earlier life, and driven by a process of its own."""
    board.delete_key(ENTRY)  # of an earlier life
    again = {"run": board.get(RUN).decode()} if board.check([RUN]) else {}
    known = again or {"session": str(session_file), "overrides": overrides}
    known["address"] = place.address
    command = [sys.executable, "-m", "volary.driver.host"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as host:
        # standard input stays open as a leash: when this process goes, however it goes, the host sees the end of it
        assert host.stdin is not None and host.stdout is not None
        host.stdin.write(json.dumps(known).encode() + b"\n")
        host.stdin.flush()
        line = host.stdout.readline()
        if not line:
            raise BadInput("the run could not be opened; the reason stands above")
        entry = json.loads(line)
        board.set(RUN, entry["run"])
        board.set(ENTRY, json.dumps(entry))
        yield _member(place, entry)


def _found(place: Place, board: Any) -> Membership:
    """Any other rank: read the entry until it leads to a server that has a place for us."""
    deadline = time.monotonic() + MEET_TIMEOUT_S
    trouble: Exception | None = None
    while time.monotonic() < deadline:
        if board.check([ENTRY]):
            try:
                return _member(place, json.loads(board.get(ENTRY)))
            except VolaryError as error:
                trouble = error
        time.sleep(AGAIN_S)
    raise PeerLost(f"rank 0 opened no run within {MEET_TIMEOUT_S:.0f} s" + (f" (last: {trouble})" if trouble else ""))


def _member(place: Place, entry: dict[str, Any]) -> Membership:
    place, directory = replace(place, life=entry["life"]), RunDirectory(entry["run"])
    return Membership.claim(place, directory, entry["host"], entry["port"], entry["server_life"])


def _board(place: Place) -> Any:
    """The launcher's store, as a client; or the file that takes its place."""
    if place.meet_file is not None:
        return FileBoard(place.meet_file)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it untyped

    host, port = place.meet_at
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=MEET_TIMEOUT_S))
