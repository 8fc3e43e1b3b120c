import os

import pytest

from volary.errors import RunError
from volary.run.control.stopping import FILE, ask_to_stop, asked_to_stop, forget_request
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")
    journal = Journal(directory.database)
    journal.start_attempt(0)
    journal.close()
    return directory


def test_a_request_reaches_the_life_that_it_is_of_and_no_other(run):
    assert asked_to_stop(run, 0) is None
    with run.lock():
        ask_to_stop(run)
        assert asked_to_stop(run, 0) == "after this step"
        assert asked_to_stop(run, 1) is None, "a resumed run is not stopped by what was asked before"
        ask_to_stop(run, "now")
        assert asked_to_stop(run, 0) == "now"
    forget_request(run)
    assert asked_to_stop(run, 0) is None


def test_nobody_is_asked_where_nobody_runs_it(run):
    with pytest.raises(RunError, match="nobody runs"):
        ask_to_stop(run)
    assert not (run.path / FILE).exists()


@pytest.mark.parametrize("content", [b"", b"stop", b"[]", b'{"attempt": 0, "how": "later"}', b'{"attempt": "0"}'])
def test_what_makes_no_sense_asks_nothing(run, content):
    (run.path / FILE).write_bytes(content)
    (run.path / FILE).chmod(0o600)
    assert asked_to_stop(run, 0) is None


def test_a_file_that_others_may_have_written_asks_nothing(run):
    with run.lock():
        ask_to_stop(run)
    (run.path / FILE).chmod(0o666)
    assert asked_to_stop(run, 0) is None


def test_a_link_asks_nothing(run, tmp_path):
    with run.lock():
        ask_to_stop(run)
    (run.path / FILE).rename(tmp_path / "elsewhere")
    (run.path / FILE).symlink_to(tmp_path / "elsewhere")
    assert asked_to_stop(run, 0) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_another_users_request_asks_nothing(run):
    with run.lock():
        ask_to_stop(run)
    os.chown(run.path / FILE, 12345, 12345)
    assert asked_to_stop(run, 0) is None
