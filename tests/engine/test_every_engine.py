"""Promises of every engine about the processes that it starts, whatever they do: over all files of the room."""

from __future__ import annotations

import ipaddress
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import volary
from engine._engines import Tried, every
from volary.engine._base import Engine, Launch
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting

SOURCE = str(Path(volary.__file__).parents[1])
TELL = f"""
import json, os, pathlib, sys
sys.path.insert(0, {SOURCE!r})
from volary.placement import find
from volary.run.launch.assignment import Assignment
given = Assignment.found(os.environ)
number = os.environ.get("VOLARY_SERVER") or str(find().rank)
draft = pathlib.Path("told-" + number + "." + str(os.getpid()))
meeting = given.meeting
draft.write_text(json.dumps([str(given.directory), meeting.address, meeting.attempt, given.job, os.getpid()]))
draft.rename("told-" + number)
"""
STAY = TELL + "import signal\nsignal.pause()\n"


@pytest.fixture(
    params=[pytest.param(one, marks=[pytest.mark.slow] if one.needs else [], id=one.name) for one in every()]
)
def engine(request: pytest.FixtureRequest) -> Engine:
    tried: Tried = request.param
    if tried.needs:
        request.getfixturevalue(tried.needs)
    if (reason := tried.why_not()) is not None:
        pytest.skip(f"{tried.name}: {reason}")
    return tried.engine


@pytest.fixture
def wish() -> Launch:
    directory = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")
    meeting = Meeting("127.0.0.1", 1234, attempt=3, attempt_id="one")
    command = [sys.executable, "-c", TELL]
    return Launch(role="worker", directory=directory, command=command, count=2, meeting=meeting, job="module:job")


def wait_until(condition: Callable[[], object], at_most_s: float = 60) -> None:
    until = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def told(number: int) -> list[object]:
    file = Path(f"told-{number}")
    wait_until(file.exists)
    found: list[object] = json.loads(file.read_text())
    return found


def gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may go between being opened and being read
        return True


def test_an_engine_says_where_the_driver_must_listen(engine: Engine) -> None:
    assert not ipaddress.ip_address(engine.host()).is_unspecified


def test_workers_are_told_their_numbers_and_their_run_and_stop_leaves_none(engine: Engine, wish: Launch) -> None:
    handle = engine.launch(replace(wish, command=[sys.executable, "-c", STAY]))
    try:
        said = [told(rank) for rank in (0, 1)]
        assert handle.running() == {0, 1}
        assert (handle.events(), handle.ended()) == ([], None)
        assert handle.children()
    finally:
        handle.stop(0.0)
    assert [one[:4] for one in said] == [[str(wish.directory.path), "127.0.0.1:1234", 3, "module:job"]] * 2
    wait_until(lambda: all(gone(int(str(one[4]))) for one in said), at_most_s=20)
    assert handle.ended() is None, "it has not ended by itself"


def test_workers_that_join_are_numbered_after_the_others_and_leave_when_they_are_asked(engine, wish) -> None:
    handle = engine.launch(replace(wish, first=3, command=[sys.executable, "-c", STAY]))
    try:
        said = [told(rank) for rank in (3, 4)]
        handle.ask_to_end()
        wait_until(lambda: all(gone(int(str(one[4]))) for one in said))
        wait_until(lambda: handle.events() is None or not handle.running())
    finally:
        handle.stop(0.0)


def test_servers_are_told_their_numbers(engine: Engine, wish: Launch) -> None:
    handle = engine.launch(replace(wish, role="server", beside=1, job=""))
    try:
        assert [told(number)[:4] for number in (0, 1)] == [[str(wish.directory.path), "127.0.0.1:1234", 3, ""]] * 2
    finally:
        handle.stop(0.0)
