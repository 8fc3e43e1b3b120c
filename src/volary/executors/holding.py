"""A task of a job of Spark that takes rows of a frame, and the process that it leaves behind, which holds them."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import psutil

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost
from volary.comm.control.server import KeyedServer, listening
from volary.errors import BadInput
from volary.executors.arrays import ColumnLayout
from volary.executors.frame import SERVICE, HeldRows
from volary.run.machine.addresses import address_for_others, address_towards

UNCLAIMED_S = 1800.0  # for which rows wait for the stage whose workers they are for, which may wait for slots
_LOOK_S = 0.5
_LAST_DESCRIPTOR = 1 << 20


@dataclass(frozen=True, kw_only=True)
class HoldOrder:
    """A task's order for rows of a frame. split: the frame's number. key: of the connections to the rows.

    towards: the machine of Spark's driver, by which a task chooses its own address; empty: all of Spark is on one
    machine. keep_bytes: of a task's rows that stay in memory.
    """

    key: str
    split: int
    layout: ColumnLayout
    towards: str
    keep_bytes: int

    def words(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, words: str) -> HoldOrder:
        """The order in a task's words."""
        found = json.loads(words)
        return cls(**found | {"layout": ColumnLayout(**found["layout"])})


def hold(order: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Take rows, leave a process behind that serves them, and yield their announcement, as Arrow has it.

    What is wrong with them is announced, too: Spark would try the task again.
    """
    wanted, context = HoldOrder.read(order), import_module("pyspark").TaskContext.get()
    try:
        held = HeldRows(batches, wanted.layout, wanted.keep_bytes)
        answer = held.announcement(wanted.split)
        if len(held):
            spark = psutil.Process(os.getppid())  # which ends with the executor
            host, port = left_behind(held, bytes.fromhex(wanted.key), _own_address(wanted.towards), spark)
            answer |= {"host": host, "port": port}
    except BadInput as error:
        answer = {"refused": str(error)}
    yield _one_row(json.dumps(answer | {"attempt": context.attemptNumber()}))


def left_behind(held: HeldRows, key: bytes, host: str, executor: psutil.Process) -> tuple[str, int]:
    """Fork a process that serves rows until nobody claims them any more, and return its address.

    It has the rows as they are in this process's memory. It ends as well if nobody has claimed them for `UNCLAIMED_S`,
    and with a process of the executor. The task need not wait for it: who connects before it serves waits instead.
    """
    with listening(host) as listener:
        if (child := os.fork()) == 0:
            try:
                os.setsid()  # Spark ends groups of processes
                if os.fork() == 0:
                    _serve(held, key, listener, executor)
            finally:
                os._exit(0)  # nothing of the task's is written or ended a second time
        threading.Thread(target=os.waitpid, args=(child, 0), name="volary-reaps", daemon=True).start()
        address = listener.getsockname()
    return str(address[0]), int(address[1])


def _serve(held: HeldRows, key: bytes, listener: socket.socket, executor: psutil.Process) -> None:
    nothing, kept = os.open(os.devnull, os.O_RDWR), listener.fileno()
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.closerange(3, kept)  # the task's connections: who reads them is to see their end
    os.closerange(kept + 1, _LAST_DESCRIPTOR)
    began_s, server = time.monotonic(), KeyedServer(key, {SERVICE: held}).start(listener)
    while not held.over.wait(_LOOK_S) and executor.is_running() and executor.status() != psutil.STATUS_ZOMBIE:
        if not held.is_claimed and time.monotonic() - began_s > UNCLAIMED_S:
            break
    server.stop()


def _own_address(towards: str) -> str:
    if not towards:
        return "127.0.0.1"
    try:
        return address_towards(towards)
    except BadInput:  # a driver whose name only its own machine knows
        return address_for_others()


def claimed(held: Mapping[str, Any], key: bytes) -> Connection:
    """A connection that keeps the process that announced these rows. Raises RuntimeError, a sentence, if it is gone."""
    try:
        return Connection.open(held["host"], held["port"], key, SERVICE, {"claims": True})
    except ConnectionLost as error:
        raise RuntimeError(f"rows of the frame are lost with their executor on {held['host']}: {error}") from None


def look_after(order: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Look whether all processes that announced rows are there; let all of them end if one is not, or if told so.

    Yields the first sentence of what is lost, or nothing.
    """
    for _ in batches:  # a row, which says nothing
        pass
    settings = json.loads(order)
    key, lost = bytes.fromhex(settings["key"]), list[str]()
    for held in settings["held"]:
        try:
            Connection.open(held["host"], held["port"], key, SERVICE, {}).close()
        except ConnectionLost as error:
            lost.append(f"{held['host']}: {error}")
    if lost or settings["release"]:
        _release(settings["held"], key)
    yield _one_row(lost[0] if lost else "")


def _release(announced: Sequence[Mapping[str, Any]], key: bytes) -> None:
    for held in announced:
        with suppress(RuntimeError):  # those that are lost
            claimed(held, key).close()


def _one_row(answer: str) -> Any:
    pyarrow: Any = import_module("pyarrow")
    return pyarrow.RecordBatch.from_pydict({"answer": [answer]})
