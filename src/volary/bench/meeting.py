"""The ranks of a measurement meet on rank 0's board, whose address travels through what the launcher gave them.

The key is in the file that the ranks have in common. A launcher's own store is open to everyone: there the key lies in
a file which only this user can read, and the store has its name.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.comm.control.store import KeyedStore
from volary.comm.groups.group import Group, join, leave
from volary.errors import PeerLost
from volary.placement import Place
from volary.run.launch.file_board import FileBoard
from volary.run.owner import require_private
from volary.sharding.groups import leads
from volary.train.member.bulletin import BoardBulletin

MEET_TIMEOUT_S = 60.0
_AGAIN_S = 0.05
_KEY_BYTES = 32


class BenchRanks:
    """The group of all ranks that have met, and what it is divided into."""

    def __init__(self, whole: Group) -> None:
        self.rank, self.world_size = whole.rank, whole.size
        self._whole, self._groups = whole, 0

    def group(self) -> Group:
        """A group of all ranks, with a new bulletin; all ranks ask for theirs in the same order."""
        self._groups += 1
        return self._whole.within(f"{self._groups}")

    def part(self) -> None:
        """Be done. Nobody's group is left while another rank is in its last collective; rank 0, which keeps the board,
        returns last: once each of the others has had its last answer.
        """
        bulletin = self.group().bulletin
        bulletin.share("end", None)
        bulletin.post("answered", None)
        for rank in range(self.world_size) if leads(self.rank) else ():
            bulletin.read("answered", rank)


@contextmanager
def met(place: Place, timeout_s: float) -> Iterator[BenchRanks]:
    """Be one of the ranks (gloo) while the context lasts.

    timeout_s: of every collective. Raises PeerLost if rank 0 does not say where to meet.
    """
    _die_with_parent()
    board, entry = _board(place), f"volary/bench/{place.attempt}"
    with ExitStack() as leaving:
        if place.leads:
            board.set(entry, json.dumps(leaving.enter_context(_kept(place))))
        posted = _read(board, entry)
        store = KeyedStore.at(posted["host"], posted["port"], _key(place, posted))
        leaving.callback(store.close)
        bulletin = BoardBulletin(store, place.rank, place.world_size, 1)
        whole = join(store, bulletin, torch.device("cpu"), timeout_s, place.address)
        leaving.callback(leave)
        ranks = BenchRanks(whole)
        yield ranks
        ranks.part()


def _key(place: Place, posted: dict[str, Any]) -> bytes:
    """The key that ranks prove to each other. Raises RunError if somebody else could have written or read it.

    In a launcher's store anyone may have written which file it is in: that must be a secret of this user's.
    """
    if place.meet_file is not None:
        return bytes.fromhex(posted["key"])
    file = Path(posted["key_file"])
    require_private(file, secret=True)
    return file.read_bytes()


@contextmanager
def _kept(place: Place) -> Iterator[dict[str, Any]]:
    """The board, served on this rank's address, and what the others must know of it."""
    key = secrets.token_bytes(_KEY_BYTES)
    with KeyedServer(key, {"board": Board()}, place.address) as server:
        host, port = server.address
        if place.meet_file is not None:
            yield {"host": host, "port": port, "key": key.hex()}
            return
        with tempfile.NamedTemporaryFile(prefix="volary-bench-") as file:
            file.write(key)
            file.flush()
            yield {"host": host, "port": port, "key_file": file.name}


def _board(place: Place) -> Any:
    """The launcher's store, as a client; or the file that takes its place."""
    if place.meet_file is not None:
        return FileBoard(place.meet_file)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it untyped

    host, port = place.meet_at
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=MEET_TIMEOUT_S))


def _read(board: Any, entry: str) -> dict[str, Any]:
    deadline = time.monotonic() + MEET_TIMEOUT_S
    while not board.check([entry]):
        if time.monotonic() > deadline:
            raise PeerLost(f"rank 0 did not say where to meet within {MEET_TIMEOUT_S:.0f} s")
        time.sleep(_AGAIN_S)
    found: dict[str, Any] = json.loads(board.get(entry))
    return found


def _die_with_parent() -> None:
    """A rank does not outlive what started it on this machine, even if that is killed."""
    driver = os.environ.get("VOLARY_DRIVER")
    if driver is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(driver):
        raise PeerLost("what started this rank is gone")
