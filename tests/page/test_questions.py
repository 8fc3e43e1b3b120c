"""The page explains communication and stragglers, from events as a run writes them."""

from __future__ import annotations

import pytest

from monitor._made_runs import journal, new_run, rows
from volary.page.questions.charts import phases
from volary.page.questions.communication import exact_bytes, stragglers
from volary.page.questions.histograms import histograms
from volary.page.questions.network import network
from volary.page.questions.staleness import staleness
from volary.run.database import counts
from volary.run.database.counts import CountRow
from volary.run.database.histograms import Histogram
from volary.run.database.network import GraphLayer, LayerGraph
from volary.run.database.reader import RunReader
from volary.run.database.spans import Span


@pytest.mark.parametrize(
    ("exchange", "workers", "expected"),
    [("allreduce", 4, 6000), ("allreduce", 2, 4000), ("server", 4, 4000), ("allreduce", 1, None)],
)
def test_what_would_travel_as_it_is(exchange, workers, expected):
    info = {"parameters": "1000", "workers": str(workers)}
    assert exact_bytes(info, {"strategy.exchange": exchange}) == expected
    assert exact_bytes({}, {}) is None


@pytest.mark.parametrize(
    ("transport", "hosts", "expected"),
    [("auto", '{"0": "ant", "1": "ant"}', None), ("tcp", "{}", 4000), ("auto", '{"0": "ant", "1": "bee"}', 4000)],
)
def test_what_is_lent_to_a_server_of_the_same_machine_does_not_count_as_saved(transport, hosts, expected):
    settings = {"engine": "local", "strategy.exchange": "server", "strategy.exchange.transport": transport}
    assert exact_bytes({"parameters": "1000", "workers": "2", "hosts": hosts}, settings) == expected


def test_who_is_slow_is_slow_until_it_is_said_otherwise_or_somebody_else_is():
    directory = new_run()
    with journal(directory) as run:
        run.event("slow", 1, 10, reason="rank 1 is slow", cause="data", share=0.4)
        run.event("slow", 2, 20, reason="rank 2 is slow", cause="forward", share=0.3)
        run.event("not_slow", 2, 30, reason="over")
        run.event("slow", None, 40, reason="all wait", cause="exchange", share=0.5)
    with RunReader(directory) as reader:
        found = stragglers(reader.events())
    assert [(one["rank"], one["from"], one["to"], one["cause"]) for one in found] == [
        (1, 10, 20, "data"),
        (2, 20, 30, "forward"),
        (None, 40, None, "exchange"),
    ]


def test_the_time_of_one_worker_by_phase_is_its_own():
    directory = new_run()
    with journal(directory) as run:
        run.steps(rows(1, 40, slow_s=0.1))
    with RunReader(directory) as reader:
        found = phases(reader, 1, 1, None, 20)
        assert (found["rank"], found["workers"], found["points"], found["width"]) == (1, 1, 40, 2)
        assert found["phases_s"]["forward"] == [0.13] * 20
        assert phases(reader, 0, 1, None, 20)["phases_s"]["exchange"] == [0.112] * 20
        assert phases(reader, 7, 1, None, 20)["points"] == 0


def test_the_course_of_staleness_is_the_mean_of_each_ten_seconds(monkeypatch):
    directory = new_run()
    with journal(directory) as run:
        for at, counted in ((1000.0, [(0, 3), (2, 1)]), (1004.0, [(2, 4)]), (1013.0, [(1, 2)])):
            monkeypatch.setattr("volary.run.machine.clock.now_s", lambda at=at: at)
            run.counts(CountRow("staleness", rank, 0, value, count) for rank, (value, count) in enumerate(counted))
    with RunReader(directory) as reader:
        assert staleness(reader) == {"x": [0, 10], "means": {"staleness": [1.25, 1.0]}}
        assert len(reader.counts()) == 4
        assert counts.PART_S == 10


def test_ratios_are_of_the_updates_magnitude_and_what_is_far_from_the_rule_is_said():
    directory = new_run()
    with journal(directory) as run:
        for name, share in (("fits", 0.001), ("fast", 0.02), ("still", 0.00001), ("fast.bias", 0.02)):
            run.histograms(
                [
                    Histogram(10, "weight", name, -1, 1, 0.5, (1, 1)),
                    Histogram(10, "update", name, -1, 1, 0.5 * share, (1, 1)),
                ]
            )
    with RunReader(directory) as reader:
        found = histograms(reader, "fast")
    assert found["ratios"] == {"fits": [0.001], "fast": [0.02], "still": [0.00001], "fast.bias": [0.02]}
    assert [one.partition(":")[0] for one in found["told"]] == ["fast", "still"]
    assert (found["chosen"], list(found["kinds"])) == ("fast", ["weight", "gradient", "update"])


def test_a_layer_whose_learning_rate_its_schedule_has_lowered_is_not_said_to_hardly_learn():
    directory = new_run()
    with journal(directory) as run:
        run.steps([row._replace(lr=0.1 if row.step < 40 else 0.0005) for row in rows(1, 40)])
        for name, share in (("scheduled", 0.00005), ("still", 0.0000001)):
            run.histograms(
                [
                    Histogram(40, "weight", name, -1, 1, 0.5, (1, 1)),
                    Histogram(40, "update", name, -1, 1, 0.5 * share, (1, 1)),
                ]
            )
    with RunReader(directory) as reader:
        (told,) = histograms(reader, "")["told"]
    assert told == (
        "still: a step changes 1e-07 of it, far less than 0.001 times 0.005, as far as its schedule has lowered the "
        "learning rate; it hardly learns"
    )


def test_a_bucket_is_shared_by_its_layers_and_a_parameter_is_the_layers_that_has_it():
    directory = new_run()
    graph = LayerGraph(
        layers=[GraphLayer(name, "Linear", [], [1], 0, 0.0) for name in ("a", "a.b", "c", "d")],
        parameters={"a.weight": 30, "a.b.weight": 10, "c.weight": 60, "e": 5, "d.weight": 7},
        samples=2,
    )
    with journal(directory) as run:
        run.network(graph)
        for step in (8, 9):
            run.spans(
                [
                    Span(0, step, "exchange", "a.weight .. c.weight", 1.0, 1.2, 4000),
                    Span(0, step, "wait", "a.weight .. c.weight", 1.1, 1.2, 0),
                ]
            )
        run.event("ways", 0, 3, bytes_per_s=0, table=[["c.weight", "onebit", 9, 0.1, "older"]])
        run.event(
            "ways", 0, 5, bytes_per_s=0, table=[["c.weight", "factors", 9, 0.1, "newer"], ["x", "exact", 1, 0, ""]]
        )
    with RunReader(directory) as reader:
        found = {one["name"]: one for one in network(reader)["layers"]}
    assert [one["parameters"] for one in found.values()] == [30, 10, 60, 7]
    assert [one["bytes"] for one in found.values()] == [1200, 400, 2400, None]
    assert found["a.b"]["communication_s"] == pytest.approx(0.2)
    assert found["a.b"]["blocked_s"] == pytest.approx(0.1)
    assert (found["c"]["way"], found["c"]["why"]) == ("factors", "newer")
    assert (found["d"]["way"], found["d"]["buckets"]) == ("", [])


def test_a_run_that_has_not_recorded_its_layers_has_none():
    with RunReader(new_run()) as reader:
        assert network(reader) == {"layers": [], "samples": 0}
