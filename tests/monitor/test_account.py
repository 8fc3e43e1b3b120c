from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import psutil
import pytest

from monitor._made_runs import checkpoint, evaluated, journal, new_run, rows, started, whole_run
from volary.errors import RunError
from volary.monitor.account import account
from volary.monitor.tables.listing import listing


def test_an_account_has_metrics_times_by_worker_and_checkpoints():
    told = account(whole_run())
    assert told.metrics == [(23, {"accuracy": 0.9132, "loss": 0.1}), (46, {"accuracy": 0.9733, "loss": 0.1})]
    assert [worker.rank for worker in told.workers] == [0, 1]
    assert told.workers[0].phases_s["backward"] == pytest.approx(0.045)
    assert [(kept.step, kept.metric, kept.condition) for kept in told.checkpoints] == [
        (23, 0.9132, "there"),
        (46, 0.9733, "there"),
    ]
    json.dumps(told.as_dict())


@pytest.mark.parametrize("courses", [True, False], ids=["with curves", "without"])
def test_a_checkpoint_that_was_measured_and_is_not_the_best_has_its_metric(courses):
    directory = new_run()
    with journal(directory) as run:
        started(run)
        for step, accuracy, better in ((23, 0.9733, True), (46, 0.9132, False)):
            evaluated(run, step, accuracy)
            checkpoint(directory, step, accuracy if better else None)
        checkpoint(directory, 50, None)
    found = account(directory, courses=courses).checkpoints
    assert [(kept.step, kept.metric) for kept in found] == [(23, 0.9733), (46, 0.9132), (50, None)]


def test_damage_is_found_when_it_is_looked_for():
    directory = whole_run()
    (directory.checkpoints / "step-00000023" / "model.safetensors").write_bytes(b"weighty of 23")
    assert [kept.condition for kept in account(directory).checkpoints] == ["there", "there"]
    first, second = account(directory, verify=True).checkpoints
    assert "damaged" in first.condition
    assert second.condition == "whole"


def test_a_missing_file_and_a_broken_manifest_need_no_looking_for():
    directory = whole_run()
    (directory.checkpoints / "step-00000023" / "model.safetensors").unlink()
    (checkpoint(directory, 50, None) / "checkpoint.json").write_text("{")
    conditions = [kept.condition for kept in account(directory).checkpoints]
    assert conditions[0] == "damaged: model.safetensors missing"
    assert conditions[2].startswith("damaged: ")


def test_an_account_does_not_change_the_run():
    directory = whole_run()
    before = files(directory.path)
    account(directory, verify=True)
    assert files(directory.path) == before


def files(folder: Path) -> dict[Path, int]:
    # a reader of a write-ahead database shares its empty log and index
    kept = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".sqlite-wal", ".sqlite-shm")]
    return {path: path.stat().st_mtime_ns for path in kept}


def test_a_database_of_another_shape_is_refused_in_a_sentence():
    directory = whole_run()
    database = sqlite3.connect(directory.database)
    database.execute("DROP TABLE steps")
    database.close()
    with pytest.raises(RunError, match="no such table: steps") as refused:
        account(directory)
    assert refused.tb  # what its frames hold lives on
    assert not [file for file in psutil.Process().open_files() if file.path.startswith(str(directory.path))]


def test_runs_are_listed_by_when_they_began_and_a_damaged_one_does_not_hide_the_others():
    for name, at in (("later", 300.0), ("earlier", 100.0)):
        with journal(new_run(name)) as run:
            started(run)
            run.steps(rows(1, 3))
            run.note(started_at=at, state="stopped", best=0.5)
    (Path("runs") / "broken").mkdir()
    (Path("runs") / "broken" / "run.sqlite").write_text("no database" * 100)
    (Path("runs") / ".new-1-a").mkdir()
    (Path("runs") / ".new-1-a" / "run.sqlite").touch()
    found = listing(Path("runs"))
    assert [(row.name, row.state, row.step, row.best) for row in found] == [
        ("broken", "unreadable", 0, None),
        ("earlier", "stopped", 3, 0.5),
        ("later", "stopped", 3, 0.5),
    ]


def test_a_folder_that_is_not_there_has_no_runs():
    assert listing(Path("nowhere")) == []


def test_who_decodes_is_what_the_first_worker_said_last_of_each_source():
    directory, said = new_run(), {"by": "threads", "count": 2, "readers": 0}
    with journal(directory) as writing:
        started(writing)
        for rank, source, why in ((1, 0, "a"), (0, 1, "b"), (0, 0, "c"), (0, 0, "d")):
            writing.event("decoding", rank, source=source, why=why, **said)
    assert account(directory).decoding == [{"source": 0, "why": "d", **said}, {"source": 1, "why": "b", **said}]


def test_what_was_read_from_each_level_is_added_up_over_workers_by_epoch():
    directory = new_run()
    with journal(directory) as writing:
        started(writing)
        for rank, epoch, memory in ((0, 0, 0), (1, 0, 1), (0, 1, 5), (0, 1, 6), (1, 1, 6)):
            writing.event("reads", rank, epoch=epoch, memory=memory, disk=0, source=6 - memory, retries=rank)
    assert account(directory).reads == {
        0: {"memory": 1, "disk": 0, "source": 11, "retries": 1},
        1: {"memory": 12, "disk": 0, "source": 0, "retries": 1},
    }
