"""Runs side by side and in a list: what differs, what they came to."""

import pytest

from monitor._made_runs import journal, new_run, started, whole_run
from volary.errors import BadInput, RunError
from volary.monitor.tables.comparison import compared, differing, table
from volary.monitor.tables.listing import listing, ordered
from volary.run.tags import Tags, write_tags
from volary.session import Session


def run_with(name, *overrides, steps=46):
    directory = whole_run(name, steps)
    directory.session.write_text(Session.read(directory.session, overrides).to_yaml())
    return directory


def rows(*runs):
    return {label: values for label, *values in table([compared(run) for run in runs])}


def test_only_settings_that_differ_are_shown_and_a_plugin_by_its_name():
    found = rows(run_with("a"), run_with("b", "optimizer.lr=0.01", "strategy.codec=topk", "run.name=b"))
    settings = list(found)[: list(found).index("state")]
    assert settings[:2] == ["optimizer.lr", "strategy.codec"]
    assert all(name.startswith("strategy.codec.") for name in settings[2:])
    assert found["optimizer.lr"] == ["0.05", "0.01"]
    assert found["strategy.codec"] == ["none", "topk"]
    assert found["strategy.codec.ratio"][0] == "-"


def test_metrics_time_speed_and_bytes_stand_side_by_side():
    found = rows(run_with("a"), run_with("b", steps=60))
    assert found["steps"] == ["46", "60"]
    assert found["validation accuracy"] == ["0.9733", "0.9733"]
    assert found["best"] == ["accuracy 0.9733 at 46", "accuracy 0.9733 at 60"]
    assert found["samples/s"] == ["640", "640"]
    assert found["sent by all workers"] == ["89.8 KiB", "117.2 KiB"]
    assert found["of that a step"] == ["2.0 KiB", "2.0 KiB"]
    assert found["training loss"] == ["0.04348", "0.03333"]


def test_a_run_that_measured_nothing_is_compared_all_the_same():
    found = rows(new_run("empty"), whole_run("b"))
    assert found["state"] == ["new", "finished"]
    assert found["validation accuracy"] == ["-", "0.9733"]


def test_equal_settings_do_not_differ_and_a_missing_one_does():
    assert differing([{"a": "1", "run.name": "x"}, {"a": "1", "run.name": "y"}]) == {}
    assert differing([{"a": "1"}, {}]) == {"a": ["1", None]}


def test_a_run_without_its_session_is_refused_by_name():
    directory = whole_run("a")
    directory.session.unlink()
    with pytest.raises(RunError, match=r"session\.yaml cannot be read"):
        compared(directory)


def test_a_list_is_sorted_with_the_best_first_whatever_better_means_and_what_has_none_last(tmp_path):
    for name, best in (("a", 0.5), ("b", 0.9), ("c", None), ("d", 0.7)):
        with journal(new_run(name)) as run:
            started(run)
            if best is not None:
                run.note(best=best, best_step=1)
    assert [row.name for row in ordered(listing(tmp_path / "runs", ["best"]), "best")] == ["b", "d", "a", "c"]
    for name in "abcd":
        with journal(new_run(f"{name}2")) as run:
            run.note(metric="loss", higher_is_better=False, best={"a": 3, "b": 1, "c": 4, "d": 2}[name], best_step=1)
    lossy = [row for row in ordered(listing(tmp_path / "runs", ["best"]), "best") if row.metric == "loss"]
    assert [row.name for row in lossy] == ["b2", "d2", "a2", "c2"]


def test_a_list_shows_settings_metrics_and_what_a_run_took(tmp_path):
    run_with("a", "optimizer.lr=0.1")
    write_tags(run_with("b", "optimizer.lr=0.02", steps=60), Tags(("good",), "mine"))
    found = listing(tmp_path / "runs", ["optimizer.lr", "strategy.codec", "accuracy", "loss", "samples_per_s", "size"])
    assert [row.columns["optimizer.lr"] for row in found] == [0.1, 0.02]
    assert {row.columns["strategy.codec"] for row in found} == {"none"}
    assert {row.columns["accuracy"] for row in found} == {0.9733}
    assert {row.columns["loss"] for row in found} == {0.1}, "the metric, and not the setting of that name"
    assert [row.columns["samples_per_s"] for row in found] == pytest.approx([640, 640])
    assert all(row.columns["size"] > 1000 for row in found)
    assert [(row.tags, row.note) for row in found] == [((), ""), (("good",), "mine")]
    assert [row.name for row in ordered(listing(tmp_path / "runs", ["optimizer.lr"]), "optimizer.lr")] == ["b", "a"]


def test_a_column_that_no_run_has_is_refused_with_the_nearest(tmp_path):
    whole_run("a")
    with pytest.raises(BadInput, match=r"no run in .*runs/ has a column 'optimizer.rl'; did you mean 'optimizer.lr'\?"):
        listing(tmp_path / "runs", ["optimizer.rl"])


def test_a_run_that_cannot_be_read_stays_in_the_list(tmp_path):
    whole_run("a")
    broken = whole_run("b")
    broken.database.write_bytes(b"no database at all" * 100)
    found = {row.name: row for row in listing(tmp_path / "runs", ["best", "size"])}
    assert found["b"].state == "unreadable"
    assert found["b"].columns == {"best": None, "size": None}
