"""The page's server tells of runs the numbers that they have."""

from __future__ import annotations

import http.client

import pytest

from monitor._made_runs import STEP_S, whole_run
from page._asking import served
from page._made import SLOW, WAYS
from volary.page.overview.folder import Folder
from volary.page.overview.table import Overview


def test_the_table_has_a_row_for_each_run_below_the_folder_also_in_folders_of_it(server):
    rows = {row["id"]: row for row in server.ask("runs")["runs"]}
    assert set(rows) == {"lenet-digits-1", "slow-1", "failed-1", "sweep/lr-0.1"}
    row = rows["lenet-digits-1"]
    assert (row["state"], row["step"], row["steps_planned"], row["workers"]) == ("finished", 46, 46, 2)
    assert (row["network"], row["source"], row["strategy"]) == ("lenet", "digits", "bsp x allreduce x none x data")
    assert (row["metric"], row["best"]) == ("accuracy", 0.9733)
    assert row["samples_per_s"] == pytest.approx(64 / STEP_S)
    assert row["size_bytes"] > 10_000
    assert rows["failed-1"]["state"] == "failed"


def test_a_table_of_very_many_runs_comes_in_parts_and_is_whole_in_the_end(tmp_path):
    for name in "abc":
        whole_run(name)
    overview = Overview(Folder(tmp_path / "runs"))
    first = overview.table(0)
    assert (len(first.runs), first.unread) == (1, 2)
    whole = overview.table()
    assert (len(whole.runs), whole.unread) == (3, 0)
    assert overview.table(0) == whole  # nothing has changed: nothing is read


def test_a_folder_that_is_a_run_shows_that_run(server, tmp_path):
    path = tmp_path / "moved"
    made = server.ask("facts", run="lenet-digits-1")["run"]
    path.symlink_to(made)
    with served(path) as alone:
        assert alone.link.endswith("#/run/lenet-digits-1")
        assert [row["id"] for row in alone.ask("runs")["runs"]] == ["lenet-digits-1"]
        assert alone.ask("facts", run="lenet-digits-1")["step"] == 46


def test_what_is_wrong_is_said_in_words_the_gravest_first(server):
    assert server.ask("facts", run="lenet-digits-1")["wrong"] == []
    (slow, shared) = server.ask("facts", run="slow-1")["wrong"]
    assert slow["text"] == f"step 40: {SLOW}"
    assert shared["text"].startswith("communication blocks compute for")
    failed = server.ask("facts", run="failed-1")["wrong"][0]
    assert failed["grave"]
    assert failed["text"].startswith("my_net.py:15 in forward: RuntimeError")


def test_the_columns_of_a_chart_hold_every_point_of_its_steps(server):
    whole = server.ask("steps", run="slow-1", columns=1000)
    assert (whole["width"], whole["points"], whole["workers"]) == (1, 200, 2)
    assert whole["x"] == list(range(1, 101))
    assert whole["loss"]["mean"][:2] == [2.0, 1.0]
    few = server.ask("steps", run="slow-1", columns=10)
    assert (len(few["x"]), few["points"], few["width"]) == (10, 200, 10) or few["width"] == 16
    assert few["loss"]["greatest"][0] == 2.0
    assert few["loss"]["least"][-1] == pytest.approx(2 / 100)
    part = server.ask("steps", run="slow-1", first=41, last=60, columns=1000)
    assert (part["x"][0], part["x"][-1], part["points"]) == (41, 60, 40)
    assert part["samples_per_s"][0] == pytest.approx(64 / (STEP_S + 0.1))
    assert part["phases_s"]["forward"][0] == pytest.approx(0.030 + 0.05)


def test_each_worker_has_its_row(server):
    found = server.ask("ranks", run="slow-1", columns=1)
    quick, slow = found["ranks"]
    assert (quick["rank"], slow["rank"]) == (0, 1)
    assert quick["waited_s"] == [pytest.approx(0.012 + 0.1)]
    assert slow["waited_s"] == [pytest.approx(0.012)]
    assert slow["own_s"][0] - quick["own_s"][0] == pytest.approx(0.1)
    assert slow["mean"]["forward_s"] == pytest.approx(0.13)
    assert slow["mean"]["steps"] == 100


def test_metrics_ways_counts_and_checkpoints_are_those_of_the_run(server):
    facts = server.ask("facts", run="slow-1")
    assert facts["metric_names"] == ["accuracy", "loss"]
    assert facts["ways"]["table"] == WAYS
    assert facts["hosts"] == {"0": "ant", "1": "bee"}
    assert sum(one["count"] for one in facts["counts"] if one["kind"] == "staleness") == 40
    metric = server.ask("metric", run="slow-1", name="accuracy")
    assert (metric["x"], metric["mean"], metric["points"]) == ([50, 100], [0.7, 0.8], 2)
    kept = server.ask("facts", run="lenet-digits-1")["checkpoints"]
    assert [(one["step"], one["metric"], one["condition"]) for one in kept] == [
        (23, 0.9132, "there"),
        (46, 0.9733, "there"),
    ]


def test_the_timeline_is_of_one_recorded_step(server):
    found = server.ask("timeline", run="slow-1")
    assert (found["steps"], found["step"], len(found["spans"])) == ([90], 90, 10)
    assert [1, "wire", "exchange", "10.weight", 41, 60, 1572864] in found["spans"]
    (journey,) = found["journeys"]
    assert journey["sent_to_received_s"] == pytest.approx(0.019)
    assert server.ask("timeline", run="lenet-digits-1")["step"] is None


def test_logs_are_one_with_equal_lines_once_and_the_error_that_came_first_on_top(server):
    found = server.ask("logs", run="failed-1")
    assert found["lines"][0] == {"who": ["worker-0", "worker-1"], "text": "loading the data"}
    assert (found["first_error"]["who"], found["first_error"]["host"], found["first_error"]["step"]) == (
        "worker-1",
        "bee",
        5,
    )
    assert found["first_error"]["lines"][0].startswith("Traceback")
    only = server.ask("logs", run="failed-1", words="RUNTIMEerror")
    assert only["found"] == 1
    assert only["lines"][0]["who"] == ["worker-1"]
    assert server.ask("logs", run="lenet-digits-1")["first_error"] is None


def test_the_session_is_the_resolved_one(server):
    assert "name: lenet" in server.ask("session", run="lenet-digits-1")["session"]


def test_a_stream_begins_at_once_and_says_when_the_run_has_changed(server):
    host, _, port = server.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    try:
        connection.request("GET", "/api/live?run=slow-1", headers={"Cookie": server.cookie})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert [answer.readline() for _ in range(3)] == [b"id: 1\n", b"event: changed\n", b"data: 1\n"]
    finally:
        connection.close()
    assert server.say("GET", "/api/live?run=nothing").status == 404


def test_runs_are_compared_by_the_settings_that_differ_and_their_results(server):
    said = server.say("GET", "/api/compare?run=lenet-digits-1&run=slow-1")
    found = said.json
    assert (found["runs"], found["differing"]) == (["lenet-digits-1", "slow-1"], 1)
    assert found["rows"][0] == ["optimizer.lr", "0.05", "0.02"]
    assert ["steps", "46", "100"] in found["rows"]
    assert ["validation accuracy", "0.9733", "0.8"] in found["rows"]
    assert server.say("GET", "/api/compare?run=slow-1").status == 400
    assert server.say("GET", "/api/compare?" + "&".join(["run=slow-1"] * 13)).status == 400
