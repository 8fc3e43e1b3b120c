"""The driver's loop, without processes: what ends a run is told apart from what its end brings about."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from volary.comm.control.connection import Connection
from volary.driver.drive import LINGER_S, LOOK_S, Drive, Launcher
from volary.driver.ending import NoWatcher
from volary.driver.host import LauncherWorkers
from volary.driver.server_group import NoServers, ServerFailure
from volary.driver.servers.storage import Storage
from volary.driver.watching.failure_detector import Rules
from volary.engine._base import Ended, Exited
from volary.errors import ServerLost, Stopped, WorkerLost
from volary.run.control.stopping import FILE, ask_to_stop
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting


class Server(NoServers):
    """A server that leaves with the run, as one whose workers are all gone; or before, while they start."""

    def __init__(self, *, left_before: bool = False) -> None:
        self.gone = left_before

    @property
    def ending(self) -> bool:  # asked once the run is over
        self.gone = True
        return False

    @property
    def failure(self) -> str:
        return "server 0 has gone" if self.gone else ""

    def account(self) -> ServerFailure | None:
        return ServerFailure(["server 0 (host g, process 16) has gone"], Path("none")) if self.gone else None


class FailedLauncher(LauncherWorkers):
    """A launcher that ends with its only worker, whose connection ends some looks later than it."""

    def __init__(self, directory: RunDirectory, meeting: Meeting) -> None:
        super().__init__()
        self._log, self._looks_left = directory.logs / "spark-workers.log", round(2 * LINGER_S / LOOK_S)
        key, hello = directory.key(), {"rank": 0, "pid": 12, "host": "h"}
        self._worker = Connection.open(meeting.host, meeting.port, key, "pulse", hello, meeting.attempt_id)
        assert self._worker.receive(10)["welcome"]

    def ended(self) -> Ended:
        return Ended("spark", 77, 1, None, self._log)

    def events(self) -> list[Exited]:
        self._looks_left -= 1
        if not self._looks_left:
            self._worker.close()
        return []

    def stop(self, grace_s: float) -> None:
        self._worker.close()


@pytest.fixture
def directory() -> RunDirectory:
    return RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")


def drive(
    directory: RunDirectory,
    keepers: NoServers,
    launch: Launcher = lambda _: LauncherWorkers(),
    startup_timeout_s: float = 0.1,
) -> None:
    rules = Rules(5, 10, startup_timeout_s)
    with directory.lock() as lock:
        Drive(directory, lock, 1, rules, NoWatcher(), Storage(lambda _: keepers)).run(launch)


def test_worker_that_is_given_up_is_the_cause_and_not_the_server_that_left_when_the_run_ended(directory):
    with pytest.raises(WorkerLost, match=r"^rank 0 did not come within") as ended:
        drive(directory, Server())
    assert "server" not in str(ended.value)


def test_server_that_has_gone_before_is_the_cause(directory):
    with pytest.raises(ServerLost, match=r"^server 0 \(host g, process 16\) has gone"):
        drive(directory, Server(left_before=True))


def test_worker_whose_end_is_seen_after_its_launcher_s_is_named(directory):
    with pytest.raises(WorkerLost, match=r"^rank 0 \(host h, process 12\) died; "):
        drive(directory, NoServers(), lambda meeting: FailedLauncher(directory, meeting), startup_timeout_s=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_start_is_ended_by_the_first_signal(directory, number):
    def launch(_: object) -> LauncherWorkers:
        os.kill(os.getpid(), number)
        return LauncherWorkers()

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it may be ignored here
    try:
        with pytest.raises(Stopped, match=r"^stopped before the first step$"):
            drive(directory, NoServers(), launch, startup_timeout_s=60)
    finally:
        signal.signal(signal.SIGHUP, before)
    with RunReader(directory) as reader:
        assert reader.state() == "stopped"


def test_run_that_begins_again_for_want_of_a_checkpoint_says_so(directory):
    for _ in range(2):
        with pytest.raises(WorkerLost):
            drive(directory, NoServers())
    with RunReader(directory) as reader:
        told = [(event.attempt, event.data["text"]) for event in reader.events(kind="warning")]
    assert told == [(1, "the run has no checkpoint yet: training begins at step 0")]


@pytest.mark.parametrize("how", ["after this step", "now"])
def test_start_is_ended_by_a_request_of_another_process_and_the_request_is_gone(directory, how):
    def launch(_: object) -> LauncherWorkers:
        ask_to_stop(directory, how)
        return LauncherWorkers()

    with pytest.raises(Stopped, match=r"^stopped before the first step$"):
        drive(directory, NoServers(), launch, startup_timeout_s=60)
    assert not (directory.path / FILE).exists()
    with RunReader(directory) as reader:
        assert reader.state() == "stopped"
