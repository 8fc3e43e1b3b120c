"""Files that come home over a run's keyed connection: whole, checked, where they belong, and none before all are."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from _home import Home, receiving
from volary.comm.files import receiver
from volary.comm.files.client import FileNotKept
from volary.comm.files.messages import PIECE_BYTES
from volary.run.checkpoints import Checkpoints, digest


@pytest.fixture
def home() -> Iterator[Home]:
    with receiving() as home:
        yield home


def test_whoever_comes_is_given_the_session(home):
    client = home.client()
    assert (client.session, client.given) == ("network: lenet\n", [])
    client.close()


def test_what_a_loop_of_one_s_own_is_given_can_be_read_and_nothing_else_of_the_run(home):
    (home.directory.path / "function.py").write_text("code")
    client = home.client()
    assert client.given == ["function.py"]
    client.get_given("function.py", Path("copy.py"))
    assert Path("copy.py").read_text() == "code"
    with pytest.raises(FileNotKept, match="the run has no key to give"):
        client.get_given("key", Path("stolen"))
    client.close()


def test_checkpoint_counts_when_the_files_of_all_ranks_have_come_and_older_ones_go(home):
    first, second = home.client(0), home.client(1)
    large = b"x" * (2 * PIECE_BYTES + 3)
    for step in (20, 40, 60):
        sums = {"model": digest(large), "rank-1.pt": digest(b"one")}
        first.send("checkpoint", large, sums["model"], step, "model")
        committing = threading.Thread(target=first.commit, args=(step, 2, sums, None))
        committing.start()
        assert step not in Checkpoints(home.directory.checkpoints).steps()
        second.send("checkpoint", b"one", sums["rank-1.pt"], step, "rank-1.pt")
        committing.join()
    checkpoints = Checkpoints(home.directory.checkpoints)
    assert checkpoints.steps() == [40, 60]
    assert checkpoints.verify(60).files == sums
    assert [(kind, step) for kind, step, _ in home.told] == [("checkpoint", step) for step in (20, 40, 60)]
    first.close()
    second.close()


def test_files_of_the_next_checkpoint_wait_until_the_one_before_counts(home):
    first, second = home.client(0), home.client(1)
    second.send("checkpoint", b"a", digest(b"a"), 20, "rank-1.pt")
    ahead = threading.Thread(target=second.send, args=("checkpoint", b"b", digest(b"b"), 40, "rank-1.pt"))
    ahead.start()
    first.commit(20, 2, {"rank-1.pt": digest(b"a")}, None)
    ahead.join()
    first.commit(40, 2, {"rank-1.pt": digest(b"b")}, None)
    assert Checkpoints(home.directory.checkpoints).steps() == [20, 40]
    first.close()
    second.close()


def test_file_that_was_changed_on_its_way_is_refused_and_its_checkpoint_never_counts(home):
    client = home.client()
    with pytest.raises(FileNotKept, match="it was changed on its way"):
        client.send("checkpoint", b"data", digest(b"other"), 20, "model")
    with pytest.raises(FileNotKept, match="it was changed on its way"):
        client.commit(20, 1, {"model": digest(b"other")}, None)
    assert list(home.directory.checkpoints.iterdir()) == []
    assert home.told == [], "the workers say it"
    client.close()


def test_disk_that_is_full_is_told_with_its_reason_and_the_connection_goes_on(home, monkeypatch):
    client = home.client()

    def full(self: Checkpoints, step: int, name: str, pieces: Any) -> str:
        next(pieces)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "receive", full)
        with pytest.raises(FileNotKept, match="No space left on device"):
            client.send("checkpoint", b"x" * (3 * PIECE_BYTES), "", 20, "model")
    with pytest.raises(FileNotKept, match="No space left on device"):
        client.commit(20, 1, {"model": ""}, None)
    client.send("checkpoint", b"data", digest(b"data"), 40, "model")
    client.commit(40, 1, {"model": digest(b"data")}, None)
    assert Checkpoints(home.directory.checkpoints).steps() == [40]
    client.close()


def test_checkpoint_of_which_nothing_more_comes_is_given_up(home, monkeypatch):
    monkeypatch.setattr(receiver, "STALLED_S", 0.05)
    client = home.client()
    with pytest.raises(FileNotKept, match="nothing more has come for"):
        client.commit(20, 2, {"rank-1.pt": "0"}, None)
    assert list(home.directory.checkpoints.iterdir()) == []
    client.close()


@pytest.mark.parametrize("name", ["../key", "/etc/passwd", ".hidden", "a/b", ""])
def test_no_name_leads_out_of_a_checkpoint(home, name):
    client = home.client()
    with pytest.raises(FileNotKept, match="a checkpoint has no file"):
        client.send("checkpoint", b"data", digest(b"data"), 20, name)
    client.close()


def test_log_that_is_sent_again_is_there_once_and_follows_what_an_earlier_life_printed(home):
    home.directory.log(1).write_text("before\n")
    client, again = home.client(1), home.client(1)
    client.log(0, b"one\n")
    client.log(4, b"two\n")
    client.take_up()  # answered, so that all before has been taken
    again.log(0, b"one\ntwo\nthree\n")
    again.take_up()
    assert home.directory.log(1).read_text() == "before\none\ntwo\nthree\n"
    client.close()
    again.close()


def test_result_is_kept_under_the_rank_that_sent_it(home):
    client = home.client(3)
    client.send("result", b"value", digest(b"value"))
    assert (home.directory.results / "rank-3.pt").read_bytes() == b"value"
    client.close()


def test_checkpoint_is_read_from_afar_by_the_names_that_it_has_and_no_other(home):
    checkpoints = Checkpoints(home.directory.checkpoints)
    checkpoints.begin(20)
    checkpoints.commit(20, 1, {"model": checkpoints.write(20, "model", b"data")}, None)
    client = home.client()
    assert client.take_up().step == 20
    assert client.get(20, "model", Path("copy")) == digest(b"data")
    assert Path("copy").read_bytes() == b"data"
    for name in ("../../key", "other"):
        with pytest.raises(FileNotKept, match="has no"):
            client.get(20, name, Path("stolen"))
    assert not Path("stolen").exists()
    client.close()


def test_process_that_goes_in_the_middle_of_a_file_leaves_nothing_that_counts(home, monkeypatch):
    monkeypatch.setattr(receiver, "STALLED_S", 0.05)
    client = home.client()
    client._send(receiver.SendFile("checkpoint", 100, "", 20, "model"))
    client.close()
    other = home.client(1)
    with pytest.raises(FileNotKept):
        other.commit(20, 1, {"model": ""}, None)
    assert Checkpoints(home.directory.checkpoints).steps() == []
    other.close()


def test_end_of_a_run_does_not_wait_for_a_checkpoint_of_which_more_was_to_come(home):
    client = home.client()
    failed: list[OSError] = []

    def commit() -> None:
        try:
            client.commit(20, 2, {"rank-1.pt": "0"}, None)
        except OSError as error:
            failed.append(error)

    client.send("checkpoint", b"data", digest(b"data"), 20, "model")
    waiting = threading.Thread(target=commit)
    waiting.start()
    home.files.close()
    waiting.join()
    client.close()
    assert failed
    assert Checkpoints(home.directory.checkpoints).steps() == []
