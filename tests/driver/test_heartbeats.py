"""Reports of workers reach watch and journal, and orders for workers reach those that come late."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE, GiveUpAfter
from volary.driver.attempt.members import TrainingMembers
from volary.driver.heartbeats import HeartbeatService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.run.database.counts import CountRow
from volary.run.database.journal import STEP_FIELDS, Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.verdict import Verdict

HELLO = {"rank": 0, "pid": 12, "host": "h"}
BOUND = GiveUpAfter(10)
WELCOME = {"welcome": True, "acknowledged": 0, "give_up_after_s": 10}
STACK = """Thread pulse
  File "/home/me/other.py", line 9, in beat
    pass

Thread MainThread
  File "/home/me/train.py", line 3, in <module>
    train()
  File "/home/me/net.py", line 15, in forward
    while True:
  File "/lib/site-packages/torch/nn/module.py", line 1, in call
    pass
"""
BEAT = {"step": 1, "phase": "forward", "progress": 4, "rows": [], "events": []}


@pytest.fixture
def directory() -> RunDirectory:
    return RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")


@pytest.fixture
def journal(directory: RunDirectory) -> Iterator[Journal]:
    journal = Journal(directory.database)
    yield journal
    journal.close()


@pytest.fixture
def hub(journal: Journal) -> HeartbeatService:
    return HeartbeatService(FailureDetector(2, Rules(5, 10, 120), now=0.0), journal)


def test_steps_events_metrics_and_facts_are_written(hub, directory):
    row = [1.0] * len(STEP_FIELDS)
    row[list(STEP_FIELDS).index("loss")] = None  # not a number
    said = [
        {"event": "checkpoint", "step": 1, "data": {"seconds": 0.5}},
        {"metrics": {"accuracy": 0.5}, "step": 1},
        {"note": {"device": "cpu"}},
    ]
    list(hub.opened(1, HELLO, 0.0))
    list(hub.received(1, BEAT | {"rows": [row], "events": said}, 0.0))
    with RunReader(directory) as reader:
        assert [step.step for step in reader.steps()] == [1]
        assert [(event.rank, event.data) for event in reader.events(kind="checkpoint")] == [(0, {"seconds": 0.5})]
        assert reader.metrics() == {"accuracy": [(1, 0.5)]}
        assert reader.info()["device"] == "cpu"
    assert hub.watch.workers[0].stepped


@pytest.mark.parametrize(
    "message",
    [
        "no mapping",
        BEAT | {"step": "three"},
        {"step": 1},
        BEAT | {"rows": [[1.0]]},
        BEAT | {"events": [{"do": "harm"}]},
        BEAT | {"events": [{"network": {"layers": ["one"], "parameters": {}, "samples": 2}}]},
        BEAT | {"bye": {"rank": 0, "outcome": "won", "step": 1}},
    ],
    ids=str,
)
def test_message_that_makes_no_sense_is_refused(hub, message):
    list(hub.opened(1, HELLO, 0.0))
    with pytest.raises(BadMessage):
        list(hub.received(1, message, 0.0))


def test_wish_to_finish_reaches_who_is_here_and_who_comes_later(hub):
    assert list(hub.opened(1, HELLO, 0.0)) == [(1, WELCOME), (1, BOUND)]
    assert list(hub.finish()) == [(1, {"finish": True})]
    assert list(hub.opened(2, HELLO | {"rank": 1}, 0.0)) == [(2, WELCOME), (2, BOUND), (2, {"finish": True})]


def test_what_the_run_is_asked_reaches_who_is_here_and_who_comes_later(hub):
    assert list(hub.opened(1, HELLO, 0.0)) == [(1, WELCOME), (1, BOUND)]
    assert list(hub.ask({"type": "checkpoint"})) == [(1, {"requests": [{"type": "checkpoint"}]})]
    assert list(hub.ask({"type": "rate", "lr": 0.1})) == [
        (1, {"requests": [{"type": "checkpoint"}, {"type": "rate", "lr": 0.1}]})
    ]
    ((_, welcome), _, (_, told)) = hub.opened(2, HELLO | {"rank": 1}, 0.0)
    assert welcome == WELCOME
    assert len(told["requests"]) == 2


def test_processes_on_this_machine_are_noted_by_rank(hub, directory):
    here = socket.gethostname()
    list(hub.opened(1, {"rank": 1, "pid": 22, "host": here}, 0.0))
    list(hub.opened(2, {"rank": 0, "pid": 21, "host": "elsewhere"}, 0.0))
    with RunReader(directory) as reader:
        assert json.loads(reader.info()["pids"]) == [os.getpid(), 22]


def test_rank_that_has_come_already_is_sent_away(hub):
    list(hub.opened(1, HELLO, 0.0))
    (_, words), close = hub.opened(2, HELLO | {"pid": 13}, 0.0)
    assert "no place for a rank 0" in words["end"]
    assert close == (2, CLOSE)
    assert list(hub.received(2, BEAT, 0.0)) == []
    list(hub.closed(2, 0.0))
    assert hub.watch.lost == []


def test_worker_whose_connection_broke_is_welcome_again_and_says_no_beat_twice(hub, directory):
    row = [1.0] * len(STEP_FIELDS)
    list(hub.opened(1, HELLO, 0.0))
    assert list(hub.received(1, BEAT | {"number": 7, "rows": [row]}, 0.0)) == [
        (1, GiveUpAfter(None)),
        (1, {"acknowledged": 7}),
    ]
    assert list(hub.opened(2, HELLO, 0.0)) == [(2, WELCOME | {"acknowledged": 7}), (2, GiveUpAfter(None))]
    assert list(hub.closed(1, 0.0)) == []  # the old connection is found to be dead after the new one has come
    said = [{"event": "checkpoint", "step": 1, "data": {}}]
    for number in (7, 8):
        assert list(hub.received(2, BEAT | {"number": number, "events": said}, 0.0)) == [(2, {"acknowledged": number})]
    assert hub.watch.workers[0].here
    with RunReader(directory) as reader:
        assert [event.kind for event in reader.events()] == ["reconnected", "checkpoint"]
        assert len(list(reader.steps())) == 1


def test_worker_that_was_given_up_meanwhile_is_told_why_when_it_comes_back(hub):
    list(hub.opened(1, HELLO, 0.0))
    list(hub.closed(1, 0.0))
    for tenth in range(40):
        list(hub.tick(tenth / 10))
    assert [(lost.rank, lost.sentence) for lost in hub.watch.lost] == [(0, "died")]
    assert list(hub.opened(2, HELLO, 4.0)) == [(2, {"end": "rank 0 was given up: it died"}), (2, CLOSE)]


def test_goodbye_carries_the_verdict(hub):
    list(hub.opened(1, HELLO, 0.0))
    verdict = Verdict(rank=0, outcome="failed", step=1, reason="E: x", frames=("T",), exit_code=3)
    list(hub.received(1, BEAT | {"bye": asdict(verdict)}, 0.0))
    list(hub.closed(1, 0.0))
    assert hub.watch.workers[0].goodbye == verdict
    assert hub.watch.lost == []


def test_worker_that_stands_still_is_asked_for_its_stack_and_warned_of_with_the_users_line(hub, directory):
    list(hub.opened(1, HELLO, 0.0))
    rows = [[0.0] * len(STEP_FIELDS)] * 4
    list(hub.received(1, BEAT | {"rows": rows}, 0.0))
    for tenth in range(120):
        for peer, message in hub.tick(tenth / 10):
            assert (peer, message) == (1, {"stack": True})
            list(hub.received(1, BEAT | {"stack": STACK}, 0.0))
        list(hub.received(1, BEAT, 0.0))
    with RunReader(directory) as reader:
        (event,) = reader.events(kind="suspect")
    assert event.data == {
        "reason": "rank 0 (host h) is alive but has made no progress for 10 s, in forward; nobody waits for it; "
        "it is at /home/me/net.py:15 in forward",
        "stack": STACK,
    }


def test_slow_worker_is_an_event_once_with_what_it_is_slow_in_and_again_when_it_is_not(hub, directory):
    for rank in (0, 1):
        list(hub.opened(1 + rank, HELLO | {"rank": rank}, 0.0))

    def steps(first: int, last: int, forward_s: float) -> None:
        for step in range(first, last):
            for rank, took_s in ((0, 0.003), (1, forward_s)):
                row = dict.fromkeys(STEP_FIELDS, 0.0) | {
                    "step": step, "rank": rank, "ended_at": 0.17 * step, "forward_s": took_s, "step_s": 0.17,
                    "exchange_s": 0.17 - took_s,
                }  # fmt: skip
                beat = BEAT | {"step": step, "progress": step, "rows": [list(row.values())]}
                list(hub.received(1 + rank, beat, 0.0))
            list(hub.tick(float(step)))

    steps(1, 40, forward_s=0.161)
    steps(40, 80, forward_s=0.003)
    with RunReader(directory) as reader:
        (slow,) = reader.events(kind="slow")
        (over,) = reader.events(kind="not_slow")
    assert (slow.rank, slow.data["cause"]) == (1, "forward")
    assert slow.step <= 20
    assert over.data == {"reason": "rank 1 is no longer slower than the others"}


def test_what_a_full_disk_keeps_out_of_the_record_is_said(hub, journal, caplog):
    list(hub.opened(1, HELLO, 0.0))
    journal._database.execute("PRAGMA query_only = 1")  # as refused a write as on a full disk
    said = [{"event": "checkpoint_failed", "step": 1, "data": {"reason": "no space left"}}]
    with caplog.at_level(logging.WARNING):
        list(hub.received(1, BEAT | {"events": said}, 0.0))
        for tenth in range(20):
            list(hub.tick(tenth / 10))
    assert [record.getMessage() for record in caplog.records] == [
        "rank 0, step 1: checkpoint failed: reason no space left",
        f"{journal.fault}; training goes on",
    ]
    assert "1 records of this run were not written" in journal.fault


def test_run_that_goes_on_hears_of_each_lost_worker_once_and_tells_it_should_it_come_back(journal, directory):
    told: list[int] = []

    def without(rank: int, reason: str, now: float) -> list[tuple[int, str]]:
        told.append(rank)
        return [(7, "somebody else's")]

    hub = HeartbeatService(FailureDetector(2, Rules(5, 10, 120), now=0.0), journal, without)
    for rank in (0, 1):
        list(hub.opened(1 + rank, HELLO | {"rank": rank}, 0.0))
        list(hub.received(1 + rank, BEAT, 0.0))
    said = []
    for tenth in range(150):
        said += hub.tick(tenth / 10)
        list(hub.received(1, BEAT | {"progress": tenth}, 0.0))
    assert told == [1]
    assert said == [
        (7, "somebody else's"),
        (2, {"end": "rank 1 was given up: it has been silent for 10 s: it is stopped, or its host is gone"}),
        (2, CLOSE),
    ]
    assert list(hub.closed(2, 20.0)) == []
    assert list(hub.closed(1, 15.0)) == []
    said = []
    for tenth in range(150, 190):
        said += hub.tick(tenth / 10)
    assert said == [(7, "somebody else's")]
    assert told == [1, 0]
    with RunReader(directory) as reader:
        assert [(event.rank, event.data["reason"][:4]) for event in reader.events(kind="lost")] == [
            (1, "has "),
            (0, "died"),
        ]


def test_worker_whose_exchange_broke_is_lost_and_one_that_left_is_not(journal):
    told: list[int] = []
    hub = HeartbeatService(
        FailureDetector(2, Rules(5, 10, 120), now=0.0), journal, lambda rank, reason, now: told.append(rank) or ()
    )
    for rank, outcome in ((0, "peer_lost"), (1, "left")):
        list(hub.opened(1 + rank, HELLO | {"rank": rank}, 0.0))
        verdict = Verdict(rank=rank, outcome=outcome, step=1, reason="no way to server 1", exit_code=4)
        list(hub.received(1 + rank, BEAT | {"bye": asdict(verdict)}, 0.0))
        list(hub.closed(1 + rank, 0.0))
    assert told == [0]
    assert [(lost.rank, lost.sentence) for lost in hub.watch.lost] == [(0, "ended: no way to server 1")]


def test_layers_are_written_and_others_replace_them(hub, directory):
    layer = {"name": "fc", "kind": "Linear", "inputs": ["input"], "shape": [10], "operations": 20, "forward_s": 0.1}
    list(hub.opened(1, HELLO, 0.0))
    with RunReader(directory) as reader:
        assert reader.network() is None
    for operations in (20, 40):
        graph = {"layers": [layer | {"operations": operations}], "parameters": {"fc.weight": 20}, "samples": 2}
        list(hub.received(1, BEAT | {"events": [{"network": graph}]}, 0.0))
    with RunReader(directory) as reader:
        found = reader.network()
    assert found is not None
    assert ([one.operations for one in found.layers], found.parameters) == ([40], {"fc.weight": 20})


def test_what_is_counted_adds_up_by_kind_worker_server_and_value(hub, directory):
    list(hub.opened(1, HELLO, 0.0))
    for counts in ([["staleness", 2, 3, 5], ["wait", -1, 8, 1]], [["staleness", 2, 3, 1], ["staleness", 0, 3, 1]]):
        list(hub.received(1, BEAT | {"events": [{"counts": counts}]}, 0.0))
    with RunReader(directory) as reader:
        assert reader.counts() == [
            CountRow("staleness", 0, 0, 3, 1),
            CountRow("staleness", 0, 2, 3, 6),
            CountRow("wait", 0, -1, 8, 1),
        ]


def test_workers_that_keep_step_hear_who_is_left_at_once_or_as_they_come_back(journal):
    watch = FailureDetector(3, Rules(5, 10, 120), now=0.0)
    hub = HeartbeatService(watch, journal, lambda *_: (), members=TrainingMembers(range(3)))
    for rank in range(3):
        list(hub.opened(rank + 1, HELLO | {"rank": rank}, 0.0))
    news = {"members": {"ranks": (0, 2), "number": 1}}
    assert [peer for peer, said in hub.fell({1: "was killed"}) if said == news] == [1, 3]
    assert [said for _, said in hub.fell({1: "was killed"})] == []
    list(hub.closed(1, 0.0))
    assert (4, news) in list(hub.opened(4, HELLO, 0.0))
