"""`volary trace`: recorded steps of a run as a file that Perfetto opens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Said
from monitor._made_runs import journal, new_run
from monitor.test_trace import check_rules, step_of
from volary import Session
from volary.run.database.spans import Span
from volary.run.directory import RunDirectory

Volary = Callable[..., Said]


def traced_run(name: str = "it") -> RunDirectory:
    """Steps 2, 3 and 100 of two ranks."""
    directory = new_run(name)
    with journal(directory) as run:
        run.note(hosts=json.dumps({0: "a", 1: "b"}))
        run.spans([one for step in (2, 3, 100) for rank in (0, 1) for one in step_of(rank, step, 40.0 * step)])
    return directory


def written(file: str = "runs/it/trace.json") -> list[dict[str, Any]]:
    found = json.loads(Path(file).read_text())["traceEvents"]
    check_rules(found)
    return [event for event in found if event["ph"] != "M"]


def test_a_trace_is_stored_in_its_run_and_communication_is_shown(volary):
    traced_run()
    said = volary("trace", "it")
    assert (said.status, said.err) == (0, "")
    first, _, title, header, *rows = said.out.splitlines()
    assert first == "wrote runs/it/trace.json: 3 steps, 2 ranks, 54 spans; open it at ui.perfetto.dev"
    assert title == "communication by bucket, medians in milliseconds"
    assert header.split("  ")[-1] == "bytes"
    assert [row.split() for row in rows] == [
        ["1.weight", "1.00", "24.00", "3.00", "-", "3.9", "KiB"],
        ["0.weight", "2.00", "4.00", "1.00", "4.00", "1000", "B"],
    ]
    assert {(event["pid"], event["args"]["step"]) for event in written()} == {
        (p, s) for p in (1, 2) for s in (2, 3, 100)
    }


def test_a_trace_in_its_run_is_written_anew_and_nothing_else_is_overwritten(volary):
    traced_run()
    assert volary("trace", "it").status == 0
    assert volary("trace", "it", "--steps", "100").status == 0
    assert {event["args"]["step"] for event in written()} == {100}
    Path("mine.json").write_text("mine")
    said = volary("trace", "it", "--out", "mine.json")
    assert (said.status, said.err) == (2, "mine.json exists already; choose another with --out\n")
    assert Path("mine.json").read_text() == "mine"
    assert volary("trace", "it", "--out", "new.json").status == 0
    assert written("new.json")


@pytest.mark.parametrize(
    ("steps", "found"), [("3:100", {3, 100}), ("3:", {3, 100}), (":3", {2, 3}), ("2", {2}), (":", {2, 3, 100})]
)
def test_some_steps_of_one_rank_can_be_chosen(steps, found, volary):
    traced_run()
    said = volary("trace", "it", "--steps", steps, "--rank", "1", "--json")
    told = json.loads(said.out)
    assert (set(told["steps"]), told["ranks"]) == (found, [1])
    assert {(event["pid"], event["args"]["step"]) for event in written()} == {(2, step) for step in found}


def test_as_json_every_journey_is_told_in_seconds(volary):
    traced_run()
    told = json.loads(volary("trace", "it", "--json").out)
    assert (told["file"], told["spans"]) == (str(Path("runs/it/trace.json").absolute()), 54)
    assert told["journeys"][0] == {
        "name": "1.weight",
        "size_bytes": 4000.0,
        "ready_to_sent_s": pytest.approx(0.001, abs=1e-6),
        "sent_to_received_s": pytest.approx(0.024, abs=1e-6),
        "received_to_applied_s": pytest.approx(0.003, abs=1e-6),
        "waited_s": None,
    }


def test_of_many_layers_those_that_took_longest_are_shown(volary):
    with journal(new_run("it")) as run:
        run.spans(
            Span(0, 2, "exchange", f"{layer}.weight", 1000.0, 1000.0 + (layer * 37 % 40) / 1000, 4)
            for layer in range(40)
        )
    lines = volary("trace", "it").out.splitlines()
    assert lines[2] == "communication by bucket, medians in milliseconds, the 30 longest of 40"
    shown = [int(line.split(".")[0]) for line in lines[4:]]
    assert shown == [layer for layer in range(40) if layer * 37 % 40 >= 10]


def test_a_run_without_spans_and_steps_without_spans_are_refused_in_a_sentence(volary):
    new_run("empty")
    said = volary("trace", "empty")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("empty has no spans: ")
    assert not Path("runs/empty/trace.json").exists()
    traced_run()
    said = volary("trace", "it", "--steps", "4:99", "--rank", "1")
    assert (said.status, said.err) == (
        2,
        "it has no spans of rank 1 in steps 4:99; recorded are the steps 2 to 3, 100\n",
    )
    said = volary("trace", "it", "--rank", "2")
    assert "no spans of rank 2" in said.err


@pytest.mark.parametrize("steps", ["", "a", "1:b", "1:2:3", "-1:2", "1.5", "٣"])
def test_steps_that_are_none_are_refused_with_what_is_accepted(steps, volary):
    traced_run()
    said = volary("trace", "it", f"--steps={steps}")
    assert said.status == 2
    assert said.err == f"--steps is {steps!r}; accepted: A:B, A:, :B or A, steps as whole numbers, both included\n"


@pytest.mark.slow  # tests/driver/test_spans.py has the spans, the others here a trace
def test_two_workers_leave_spans_that_make_a_trace(volary):
    session = Session(
        network="softmax",
        data={"source": "digits", "batch_size": 64},
        train={"steps": 13},
        evaluate={"every": "never"},
        strategy={"workers": 2, "exchange": {"name": "allreduce", "route": "torch"}},
        run={"name": "it"},
    )
    session.train(show=False)
    said = volary("trace", "it", "--json")
    assert said.status == 0, said.err
    told = json.loads(said.out)
    assert told["ranks"] == [0, 1]
    found = written()
    wanted = [("phase", "data"), ("phase", "forward"), ("phase", "backward"), ("phase", "exchange")]
    names = {event["name"] for event in found if event["cat"] == "exchange"}
    assert {one["name"] for one in told["journeys"] if one["sent_to_received_s"]} == names
    for rank in (0, 1):
        mine = [event for event in found if event["pid"] == rank + 1]
        for kind, name in [*wanted, *((kind, name) for kind in ("ready", "exchange", "update") for name in names)]:
            steps = {event["args"]["step"] for event in mine if (event["cat"], event["name"]) == (kind, name)}
            assert steps == set(range(2, 12)), (rank, kind, name)
