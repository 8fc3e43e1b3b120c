"""Results of a sweep, of runs that were written without training."""

from pathlib import Path

import pytest

from monitor._made_runs import evaluated, finished, journal, new_run, rows, started
from volary.errors import RunError, SettingError
from volary.monitor.tables.sweep import combinations, table
from volary.run.sweep import FILE, Rung, Sweep

MEMBERS = {
    f"lr-{lr}-seed-{seed}": {"optimizer.lr": lr, "train.seed": str(seed)} for lr in ("0.1", "0.5") for seed in (1, 2)
}


@pytest.fixture
def sweep():
    return Sweep.create(Path("sweeps"), None, "lenet-digits", "network: lenet\n", MEMBERS)


def trained(sweep, member, best, state="finished", **facts):
    run = new_run(member)
    with journal(run) as written:
        started(written, 4)
        written.note(**facts)
        written.steps(rows(1, 4))
        evaluated(written, 4, best)
        finished(written, 4, state)
    run.path.rename(sweep.folder / member)


def test_combinations_are_ranked_by_the_mean_over_their_seeds(sweep):
    for member, best in zip(MEMBERS, (0.5, 0.7, 0.8, 0.9), strict=True):
        trained(sweep, member, best)
    best, worst = combinations(sweep)
    assert (best.settings, best.mean) == ({"optimizer.lr": "0.5"}, pytest.approx(0.85))
    assert (worst.best, worst.as_dict()["deviation"]) == ((0.5, 0.7), pytest.approx(0.1414, abs=1e-4))
    header, lines = table([best, worst])
    assert header == ("optimizer.lr", "runs", "best accuracy", "+-", "time")
    assert lines[0][:4] == ("0.5", "2 finished", "0.85", "0.07071")


def test_where_less_is_better_the_least_comes_first(sweep):
    for member, best in zip(MEMBERS, (0.5, 0.7, 0.8, 0.9), strict=True):
        trained(sweep, member, best, higher_is_better=False)
    assert [one.settings["optimizer.lr"] for one in combinations(sweep)] == ["0.1", "0.5"]


def test_what_failed_was_refused_or_not_begun_is_told_and_comes_last(sweep):
    trained(sweep, "lr-0.5-seed-1", 0.3)
    trained(sweep, "lr-0.5-seed-2", 0.1, state="failed")
    sweep.log("lr-0.1-seed-1").write_text("optimizer.lr: is too high\n")
    first, last = combinations(sweep)
    assert (first.settings["optimizer.lr"], list(first.states.values())) == ("0.5", ["finished", "failed"])
    assert list(last.states.values()) == ["refused", "not begun"]
    assert table([first, last])[1][1] == ("0.1", "1 refused, 1 not begun", "-", "-", "-")


def test_a_sweep_is_found_again_in_its_folder(sweep):
    assert Sweep.existing(sweep.folder) == sweep
    assert sweep.folder.name == "lenet-digits-sweep-1"
    assert Sweep.create(Path("sweeps"), None, "lenet-digits", "", MEMBERS).folder.name == "lenet-digits-sweep-2"
    assert [one.folder.name for one in Sweep.all_in(Path("sweeps"))] == ["lenet-digits-sweep-1", "lenet-digits-sweep-2"]


def test_a_name_that_is_taken_or_none_is_refused(sweep):
    with pytest.raises(RunError, match="exists already; choose another --name, or resume it: volary sweep"):
        Sweep.create(Path("sweeps"), "lenet-digits-sweep-1", "x", "", MEMBERS)
    with pytest.raises(SettingError, match=r"--name is '\.\./x'; accepted: letters"):
        Sweep.create(Path("sweeps"), "../x", "x", "", MEMBERS)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 3}', b'{"../../elsewhere": {}}'])
def test_a_folder_whose_plan_cannot_be_read_is_refused(sweep, content):
    (sweep.folder / FILE).write_bytes(content)
    with pytest.raises(RunError, match="is no sweep"):
        Sweep.existing(sweep.folder)
    assert Sweep.all_in(sweep.folder.parent) == []


def test_runs_that_were_stopped_early_say_where_and_count_as_done(sweep):
    sweep.write_rungs([Rung("4 steps", ["lr-0.5-seed-1", "lr-0.5-seed-2"]), Rung("8 steps")])
    for member, best in zip(MEMBERS, (0.5, 0.7, 0.8, 0.9), strict=True):
        trained(sweep, member, best, state="finished" if "lr-0.5" in member else "stopped")
    best, worst = combinations(sweep)
    assert table([best, worst])[1][1][:2] == ("0.1", "2 stopped early at 4 steps")
    assert (best.unfinished, worst.unfinished) == (0, 0)


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"at": 3}]'])
def test_rungs_that_cannot_be_read_are_refused(sweep, content):
    (sweep.folder / "rungs.json").write_bytes(content)
    with pytest.raises(RunError, match=r"rungs\.json cannot be read"):
        combinations(sweep)
