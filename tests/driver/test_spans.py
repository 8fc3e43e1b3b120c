"""Spans that workers report reach the run's directory, unless they make no sense."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from volary.comm.control.errors import BadMessage
from volary.driver.heartbeats import HeartbeatService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.database.spans import Span
from volary.run.directory import RunDirectory

SAID = [2, "exchange", "0.weight", 1000.0, 1000.5, 64]


@pytest.fixture
def directory() -> RunDirectory:
    return RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")


@pytest.fixture
def hub(directory: RunDirectory) -> Iterator[HeartbeatService]:
    journal = Journal(directory.database)
    hub = HeartbeatService(FailureDetector(2, Rules(5, 10, 120), now=0.0), journal)
    list(hub.opened(7, {"rank": 1, "pid": 12, "host": "h"}, 0.0))
    yield hub
    journal.close()


def say(hub: HeartbeatService, *spans: list[object]) -> None:
    list(hub.received(7, {"step": 2, "phase": "forward", "progress": 4, "events": [{"spans": list(spans)}]}, 0.0))


def test_spans_are_written_with_their_rank_and_its_host_is_known(hub, directory):
    say(hub, SAID, [2, "wait", "4", 1001.0, 1001.25, 0])
    with RunReader(directory) as reader:
        assert list(reader.spans(0, 9)) == [
            Span(1, 2, "exchange", "0.weight", 1000.0, 1000.5, 64),
            Span(1, 2, "wait", "4", 1001.0, 1001.25, 0),
        ]
        assert json.loads(reader.info()["hosts"]) == {"1": "h"}


@pytest.mark.parametrize(
    "wrong",
    [SAID[:5], [*SAID, 1], ["2", *SAID[1:]], [-1, *SAID[1:]], [*SAID[:5], 2**64], [*SAID[:3], float("nan"), *SAID[4:]]],
    ids=str,
)
def test_a_span_that_makes_no_sense_is_refused(wrong, hub, directory):
    with pytest.raises(BadMessage):
        say(hub, SAID, wrong)
    with RunReader(directory) as reader:
        assert reader.recorded_steps() == []
