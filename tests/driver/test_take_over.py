"""`volary attach --drive` where no other driver may take the place: one sentence, and the run is as it was."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path

import pytest

import volary
from comm.conftest import Echo
from volary.comm.control.server import KeyedServer
from volary.driver.replacing.take_over import take_over
from volary.errors import RunError
from volary.monitor.terminal.plain import Quiet
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting, announce

WAITS = """\
network: lenet
data: {source: digits}
strategy: {workers: 2, recover: memory, wait_for_driver_s: 60}
"""
HERE = {"pid": 4711, "host": socket.gethostname(), "version": volary.__version__}


class Left:
    """A run that trains, whose driver noted these facts; what it has left is somebody who holds its lock."""

    def __init__(self, session: str = WAITS, state: str = "running", **driver: object) -> None:
        self.directory = RunDirectory.create(Path("runs"), "it", "x", session)
        journal = Journal(self.directory.database)
        journal.start_attempt(0)
        journal.note(state=state, driver=json.dumps(HERE | driver))
        journal.close()

    def assert_refused(self, words: str) -> None:
        before = self.directory.database.read_bytes()
        with pytest.raises(RunError, match=f"^{re.escape(str(self.directory.path))}{re.escape(words)}$"):
            take_over(self.directory, Quiet(sys.stderr))
        assert self.directory.database.read_bytes() == before


def test_a_run_that_is_over_is_to_be_resumed():
    Left(state="stopped").assert_refused(" is over (stopped); resume it: volary resume it")


def test_a_run_whose_workers_do_not_wait_is_to_be_resumed():
    Left(WAITS.replace(", wait_for_driver_s: 60", "")).assert_refused(
        ": strategy.wait_for_driver_s is 0, so that its workers save and end without their driver; resume it: volary "
        "resume it"
    )


def test_a_run_in_which_nobody_is_left_is_to_be_resumed():
    Left().assert_refused(" has neither a driver nor workers any more; resume it: volary resume it")


def test_a_run_on_another_machine_is_to_be_driven_there():
    left = Left(host="elsewhere")
    with left.directory.lock():
        left.assert_refused(
            " has its workers on host elsewhere, where process 4711 on host elsewhere was; drive it there"
        )


def test_a_run_that_another_version_began_is_to_be_driven_by_that():
    left = Left(version="0.0.1")
    with left.directory.lock():
        left.assert_refused(
            f" was begun by Volary 0.0.1, and this is {volary.__version__}; drive it with that, or stop it (volary "
            "stop it) and resume it: volary resume it"
        )


def test_a_run_without_an_address_starts_or_ends():
    left = Left()
    with left.directory.lock():
        left.assert_refused(" is starting or ending: its driver has no address (any more)")


def test_a_driver_that_answers_is_left_alone():
    left = Left()
    with left.directory.lock(), KeyedServer(left.directory.key(), {"board": Echo()}) as server:
        announce(left.directory, Meeting(*server.address, 0, server.attempt_id))
        left.assert_refused(
            f" is driven by process 4711 on host {HERE['host']}, which answers; follow it: volary attach it"
        )
