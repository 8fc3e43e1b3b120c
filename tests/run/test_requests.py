import os

import pytest

from volary.errors import RunError
from volary.run.control.requests import ChangeRate, WriteCheckpoint, ask, forget_requests, take
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")
    journal = Journal(directory.database)
    journal.start_attempt(0)
    journal.close()
    return directory


def asked(run):
    return [path for path in run.path.iterdir() if path.name.startswith("request-")]


def test_requests_are_taken_once_and_in_order(run):
    with run.lock():
        for request in (WriteCheckpoint(), ChangeRate(0.01), ChangeRate(0.1)):
            ask(run, request)
    assert take(run, 0) == [WriteCheckpoint(), ChangeRate(0.01), ChangeRate(0.1)]
    assert take(run, 0) == []


def test_what_an_earlier_life_was_asked_is_not_done_in_the_next(run):
    with run.lock():
        ask(run, WriteCheckpoint())
    assert take(run, 1) == []
    assert asked(run) == []


def test_nothing_is_left_of_requests_that_nobody_took(run):
    with run.lock():
        ask(run, WriteCheckpoint())
    forget_requests(run)
    assert asked(run) == []


def test_nobody_is_asked_where_nobody_runs_it(run):
    with pytest.raises(RunError, match="nobody runs"):
        ask(run, WriteCheckpoint())
    assert asked(run) == []


def test_a_loop_of_ones_own_is_not_asked(run):
    run.session.write_text("function: train.py:main\n")
    with run.lock(), pytest.raises(RunError, match="a training loop of your own, which keeps its own state"):
        ask(run, WriteCheckpoint())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"attempt": 0, "request": {"type": "delete"}}',
        b'{"attempt": 0, "request": {"type": "rate", "lr": -1}}',
    ],
)
def test_what_makes_no_sense_asks_nothing_and_is_removed(run, content):
    path = run.path / "request-1.json"
    path.write_bytes(content)
    path.chmod(0o600)
    assert take(run, 0) == []
    assert not path.exists()


def test_a_file_that_others_may_have_written_asks_nothing(run):
    with run.lock():
        ask(run, WriteCheckpoint())
    asked(run)[0].chmod(0o666)
    assert take(run, 0) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_another_users_request_asks_nothing(run):
    with run.lock():
        ask(run, WriteCheckpoint())
    os.chown(asked(run)[0], 12345, 12345)
    assert take(run, 0) == []
