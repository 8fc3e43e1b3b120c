"""The judge of runs with servers, and of those that go on without a lost worker: their roster says how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from driver._judged import AGAIN, AT, FRAMES, lines, said, watched
from volary.driver.server_group import NoServers, ServerFailure
from volary.driver.watching.judge import judge
from volary.engine._base import Exited
from volary.errors import NotSaved, ServerLost, WorkerFailed, WorkerLost


@dataclass
class Elastic(NoServers):
    """A run that goes on without those that are lost. words: what is wrong with its servers."""

    outcome: str | None = None
    words: str = ""
    elastic, lock_step = True, False

    def account(self) -> ServerFailure | None:
        return ServerFailure([self.words], Path("runs/it/logs/server-1.log")) if self.words else None

    def steps(self, told: int) -> int:
        return 12  # by the roster, whatever workers have counted


def test_elastic_run_ends_as_its_roster_says_whoever_was_lost_or_left(directory):
    watch = watched()
    watch.left(1)
    verdicts = {0: said(0, "finished", step=9), 2: said(2, "left", step=3)}
    ending = judge(directory, watch, [Exited(1, -9, 9)], verdicts, Elastic("finished"))
    assert (ending.state, ending.step) == ("finished", 12)
    stopped = judge(directory, watch, [], {0: said(0, "left", step=9)}, Elastic("stopped"))
    assert stopped.state == "stopped"
    assert stopped.message == "stopped after step 12"


def test_workers_that_keep_step_say_themselves_how_the_run_ended_that_they_went_on_with(directory):
    watch, keepers = watched(), NoServers(recovers=True)
    watch.fell(1, "was killed by SIGKILL")
    watch.dismiss(1)
    finished = {rank: said(rank, "finished", step=9) for rank in (0, 2)}
    ending = judge(directory, watch, [Exited(1, -9, 9)], finished, keepers)
    assert (ending.state, ending.step) == ("finished", 9)
    stopped = judge(directory, watch, [], finished | {2: said(2, "stopped", step=9)}, keepers)
    assert (stopped.state, stopped.step) == ("stopped", 9)
    with pytest.raises(WorkerLost, match=r"no worker is left\nrank 1"):
        judge(directory, watch, [Exited(1, -9, 9)], {0: said(0, "peer_lost", step=9)}, keepers)


def test_a_run_over_servers_that_has_come_to_its_end_has_done_so_also_if_it_needed_every_worker_until_then(directory):
    watch = watched()
    watch.fell(1, "was killed by SIGKILL")
    keepers = Elastic("finished")
    keepers.elastic = False
    ending = judge(directory, watch, [Exited(1, -9, 9)], {0: said(0, "finished", step=9)}, keepers)
    assert (ending.state, ending.step) == ("finished", 12)
    keepers.outcome = None
    with pytest.raises(WorkerLost, match="rank 1"):
        judge(directory, watch, [Exited(1, -9, 9)], {0: said(0, "peer_lost", step=9)}, keepers)


def test_elastic_run_that_nobody_is_left_of_names_the_last_one(directory):
    watch = watched()
    for rank in (1, 0, 2):
        watch.left(rank)
        watch.conclude()
        watch.dismiss(rank)
    with pytest.raises(WorkerLost) as caught:
        judge(directory, watch, [Exited(2, -9, 9), Exited(1, -9, 9)], {}, Elastic())
    assert lines(caught.value)[:2] == [
        "no worker is left",
        "rank 2 (host h, process 102) was killed by SIGKILL; last step 7, in forward by its last heartbeat",
    ]
    assert lines(caught.value)[3:5] == ["  rank 1 died", "  rank 0 died"]


def test_elastic_run_ends_with_the_error_of_a_workers_own_code(directory):
    verdicts = {0: said(0, "finished", step=9), 1: said(1, "failed", AT + "ValueError: boom", FRAMES)}
    with pytest.raises(
        WorkerFailed, match=r"(?s)^net.py:9 in forward: ValueError: boom\n  rank 1 .* at step 8, in forward"
    ):
        judge(directory, watched(), [], verdicts, Elastic())


def test_lost_server_comes_before_the_workers_that_lost_it(directory):
    words = "server 1 (host h, process 9) was killed by SIGKILL"
    verdicts = {rank: said(rank, "peer_lost", "no way to server 1") for rank in range(3)}
    with pytest.raises(ServerLost) as caught:
        judge(directory, watched(), [], verdicts, Elastic(words=words))
    assert lines(caught.value) == [words, AGAIN]


def test_worker_that_was_given_up_comes_before_the_server_that_left_when_the_run_ended(directory):
    watch = watched(world_size=1, joined=1)
    for tick in range(200):
        watch.tick(tick / 10)
    keepers = Elastic(words="server 0 (host g, process 16) has gone, and nobody else keeps what it kept")
    keepers.elastic = False
    with pytest.raises(WorkerLost) as caught:
        judge(directory, watch, [], {}, keepers, worker_first=True)
    assert "rank 0 (host h, process 100) has been silent for " in lines(caught.value)[0]
    assert "server" not in str(caught.value)
    with pytest.raises(ServerLost):  # one that had gone before is the cause
        judge(directory, watch, [], {}, keepers)


class Unsaved(NoServers):
    unsaved = "the last checkpoint, of step 9, could not be written: no room"


def test_a_run_whose_servers_could_not_save_its_end_has_failed(directory):
    verdicts = {rank: said(rank, "finished", exit_code=0) for rank in range(3)}
    with pytest.raises(NotSaved) as caught:
        judge(directory, watched(), [], verdicts, Unsaved())
    assert lines(caught.value) == [Unsaved.unsaved, AGAIN]
    assert caught.value.exit_code == 1
