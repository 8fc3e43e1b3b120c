"""A worker's own account of its end: read back as written, or not at all."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.run.verdict import Verdict, read_verdict


def test_a_verdict_is_read_back_with_its_host_and_process(tmp_path):
    verdict = Verdict(
        rank=2,
        outcome="failed",
        step=41,
        attempt=3,
        phase="backward",
        reason="ValueError: ü",
        place="net.py:9 in forward",
        frames=("net.py:9 in forward", "    boom()"),
        exit_code=3,
    )
    verdict.write(tmp_path)
    assert read_verdict(tmp_path, 2, attempt=3) == verdict
    assert (verdict.host, verdict.pid) == (socket.gethostname(), os.getpid())


@pytest.mark.parametrize(
    ("reason", "words"), [("no way to server 1", "ended: no way to server 1"), ("", "ended without reporting a reason")]
)
def test_a_verdict_says_that_its_worker_ended_and_why_if_that_is_known(reason, words):
    assert Verdict(rank=1, outcome="peer_lost", step=3, reason=reason).ended == words


def test_no_verdict_and_one_of_another_life_are_none(tmp_path):
    assert read_verdict(tmp_path, 0, attempt=0) is None
    Verdict(rank=0, outcome="finished", step=9, attempt=0).write(tmp_path)
    assert read_verdict(tmp_path, 0, attempt=1) is None
    assert read_verdict(tmp_path, 1, attempt=0) is None


def test_a_new_life_replaces_the_old_ones(tmp_path):
    for attempt in range(2):
        Verdict(rank=0, outcome="finished", step=9, attempt=attempt).write(tmp_path)
    assert read_verdict(tmp_path, 0, attempt=0) is None
    assert read_verdict(tmp_path, 0, attempt=1) is not None
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0.json"]


def test_what_an_earlier_process_left_half_written_is_cleared_and_another_ranks_is_not(tmp_path):
    (tmp_path / ".rank-1.json.4711").write_text("half")
    (tmp_path / ".rank-10.json.4712").write_text("half")
    Verdict(rank=1, outcome="finished", step=9).write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".rank-10.json.4712", "rank-1.json"]


@given(data=st.binary(max_size=100) | st.text().map(str.encode))
def test_a_file_of_any_bytes_is_no_verdict(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("verdicts")
    (folder / "rank-0.json").write_bytes(data)
    assert read_verdict(folder, 0, attempt=0) is None


@pytest.mark.parametrize("change", [(b'"finished"', b'"perhaps"'), (b'"step":9', b'"step":"9"'), (b"}", b"")])
def test_a_verdict_that_is_not_one_is_none(tmp_path, change):
    Verdict(rank=0, outcome="finished", step=9).write(tmp_path)
    path = tmp_path / "rank-0.json"
    path.write_bytes(path.read_bytes().replace(*change))
    assert read_verdict(tmp_path, 0, attempt=0) is None
