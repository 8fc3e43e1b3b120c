"""`volary join`: what can be joined, what cannot and why; who joins can leave again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults._running import VOLARY, Run, events, last_step, learnt, running, session
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.session.spec import Session


@pytest.fixture
def elastic() -> Iterator[Run]:
    exchange = "{name: server, servers: 1}"
    with running(*VOLARY, "train", session(workers=1, pace_s=0.02, consistency="async", exchange=exchange)) as run:
        run.wait_for_step(3)
        yield run


def made(consistency: str, exchange: str, **facts: object) -> RunDirectory:
    """A run that nobody runs."""
    text = Session.read(session(consistency=consistency, exchange=exchange)).to_yaml()
    directory = RunDirectory.create(RunDirectory("runs").path, "it", "x", text)
    journal = Journal(directory.database)
    journal.note(**facts)
    journal.close()
    return directory


def test_run_that_nobody_runs_is_refused_with_the_way_to_go_on(volary):
    directory = made("async", "server", state="stopped")
    said = volary("join", "it")
    assert (said.status, said.out) == (2, "")
    assert said.err == f"nobody runs {directory.path} at this moment; resume it: volary resume {directory.argument}\n"


def test_finished_run_is_refused(volary):
    directory = made("async", "server", state="finished")
    assert volary("join", "it").err == f"{directory.path} is finished; there is nothing to join\n"


@pytest.mark.parametrize(("consistency", "exchange"), [("bsp", "allreduce"), ("bsp", "server")])
def test_run_whose_workers_are_fixed_is_refused(volary, consistency, exchange):
    made(consistency, exchange)
    said = volary("join", "it")
    assert said.status == 2
    assert "trains with workers that are fixed; accepted: a run with strategy.recover=memory, or" in said.err


def test_number_of_workers_must_make_sense(volary):
    made("async", "server")
    assert volary("join", "it", "--workers", "0").status == 2


@pytest.mark.slow
def test_workers_that_joined_leave_with_ctrl_c_and_the_run_goes_on_without_them(elastic):
    with running(*VOLARY, "join", "it", "--workers", "2") as joining:
        elastic.wait_until(lambda: learnt(elastic, 1) and learnt(elastic, 2))
        joining.process.send_signal(signal.SIGINT)
        ended = joining.ended()
    assert (ended.status, ended.out) == (0, "rank 1, 2 left it\n")
    assert sorted(event.rank for event in events(elastic.directory, "joined")) == [1, 2]
    elastic.wait_until(lambda: sorted(event.rank for event in events(elastic.directory, "left")) == [1, 2])
    at = last_step(elastic.directory)
    elastic.wait_until(lambda: last_step(elastic.directory) > at + 10)
    elastic.process.send_signal(signal.SIGINT)
    assert elastic.ended().status == 130
    assert events(elastic.directory, "lost") == []


@pytest.mark.slow
def test_worker_that_is_ready_only_when_the_run_has_ended_says_so_and_is_no_loss():
    text = session(workers=1, pace_s=0.02, after="go", consistency="async", exchange="{name: server, servers: 1}")
    with running(*VOLARY, "train", text) as run:
        run.wait_for_step(3)
        with running(*VOLARY, "join", "it") as joining:
            run.wait_until(lambda: events(run.directory, "joined"))
            run.process.send_signal(signal.SIGINT)
            run.wait_until(lambda: list(run.directory.verdicts.glob("rank-0.json")))
            Path("go").touch()
            ended = joining.ended()
        assert run.ended().status == 130, run.text()
    assert (ended.status, ended.out) == (0, "rank 1 left it, which has ended\n")
    assert events(run.directory, "lost") == []


def test_only_the_engine_of_those_who_join_can_be_chosen(volary):
    made("async", "server")
    said = volary("join", "it", "optimizer.lr=1")
    assert said.status == 2
    assert said.err == (
        "optimizer.lr=1: workers that join a run have its settings; accepted: engine=NAME and settings of it\n"
    )
    said = volary("join", "it", "engine=locall")
    assert said.status == 2
    assert "did you mean 'local'?" in said.err
