"""Checkpoints in a store, with a real S3 server: whole before they count, read from there, and gone with their run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from data._stores import s3_server
from volary.cli.command.main import run as command
from volary.driver.ending import NoWatcher
from volary.driver.resume import resume
from volary.driver.start import start
from volary.driver.tasks.task import create
from volary.errors import BadInput, RunError
from volary.run.checkpoints import MANIFEST, Checkpoints
from volary.run.directory import RunDirectory
from volary.run.removing import remove
from volary.session import Session
from volary.storage import remote_path
from volary.storage.retrying import Retries

WHERE = "s3://bucket/checkpoints"
FILES = {"model.safetensors": b"weights" * 40, "rank-0.pt": b"zero" * 30, "rank-1.pt": b"one" * 30}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def store(server):
    """The files of the store; afterwards there are none."""
    found = fsspec.filesystem("s3", use_listings_cache=False)
    yield found
    for key in found.find("bucket"):
        found.rm(key)


def session(**more: object) -> Session:
    values: dict[str, object] = {
        "network": "lenet",
        "data": {"source": "digits", "batch_size": 16},
        "train": {"steps": 4},
        "checkpoint": {"every": "2 steps", "path": WHERE},
        "run": {"name": "it"},
    }
    return Session(**values | more)  # type: ignore[arg-type]


@pytest.fixture
def checkpoints(store) -> Checkpoints:
    return Checkpoints(create(session()).checkpoints)


def save(checkpoints: Checkpoints, step: int, metric: float | None = None, **others: bytes) -> None:
    checkpoints.begin(step)
    sums = {name: checkpoints.write(step, name, data) for name, data in {**FILES, **others}.items()}
    checkpoints.commit(step, 2, sums, metric)


def test_checkpoint_counts_once_its_manifest_is_there_and_comes_back_whole(checkpoints, store):
    checkpoints.begin(2)
    sums = {name: checkpoints.write(2, name, data) for name, data in FILES.items()}
    assert (checkpoints.steps(), checkpoints.newest_whole()) == ([], (None, []))
    checkpoints.commit(2, 2, sums, 0.5)
    assert (checkpoints.steps(), checkpoints.verify(2).metric) == ([2], 0.5)
    assert {name: (checkpoints.path(2) / name).read_bytes() for name in FILES} == FILES
    assert checkpoints.missing(checkpoints.manifest(2)) == []


def test_draft_of_a_killed_save_is_cleared_away_and_older_ones_stay(checkpoints, store):
    save(checkpoints, 2)
    checkpoints.begin(4)
    checkpoints.write(4, "rank-0.pt", b"half")
    checkpoints.begin(6)
    assert sorted(store.ls("bucket/checkpoints/it", detail=False)) == [
        "bucket/checkpoints/it/run.json",
        "bucket/checkpoints/it/step-00000002",
    ]
    assert checkpoints.steps() == [2]


def test_older_checkpoint_of_the_same_step_counts_until_the_new_one_does(checkpoints, store):
    for turn in (b"first", b"second", b"third"):
        save(checkpoints, 2, extra=turn)
        assert checkpoints.bring(2).files.keys() == {*FILES, "extra"}
        assert (checkpoints.path(2) / "extra").read_bytes() == turn
        checkpoints.begin(2)
        checkpoints.write(2, "extra", b"of a save that is killed")
        assert (checkpoints.steps(), checkpoints.verify(2).step) == ([2], 2)


def test_damaged_one_is_set_aside_and_the_one_before_is_used(checkpoints, store):
    save(checkpoints, 2)
    save(checkpoints, 4)
    store.pipe_file("bucket/checkpoints/it/step-00000004/rank-1.pt", b"changed")
    manifest, (warning,) = checkpoints.take_up()
    assert manifest is not None
    assert (manifest.step, checkpoints.steps()) == (2, [2])
    assert warning.startswith(f"{WHERE}/it/step-00000004/rank-1.pt: damaged, its checksum is ")
    assert store.exists(f"bucket/checkpoints/it/damaged-step-00000004/{MANIFEST}")


def test_only_the_newest_and_the_best_are_kept(checkpoints, store):
    save(checkpoints, 2, metric=0.5)
    for step in (4, 6, 8):
        save(checkpoints, step)
    checkpoints.keep(2, keep_best=True)
    assert checkpoints.steps() == [2, 6, 8]


def test_failing_call_is_made_again_and_a_store_that_stays_away_is_named(checkpoints, store, monkeypatch):
    monkeypatch.setattr(remote_path, "RETRIES", Retries((0.0, 0.0)))
    inner = checkpoints.files._root.store  # type: ignore[attr-defined]
    sent = inner.put_file
    failures = iter([True, False])

    def flaky(path, key):
        if next(failures, False):
            raise ConnectionResetError("the server hung up")
        return sent(path, key)

    monkeypatch.setattr(inner, "put_file", flaky)
    save(checkpoints, 2)
    assert checkpoints.verify(2).step == 2

    def away(*_, **__):
        raise ConnectionRefusedError("nobody there")

    for name in ("put_file", "exists", "find"):
        monkeypatch.setattr(inner, name, away)
    with pytest.raises(OSError, match=r"the store failed 3 times in 0 s \(nobody there\)"):
        checkpoints.write(4, "rank-0.pt", b"0")
    with pytest.raises(RunError, match=f"checkpoints in {WHERE}/it cannot be read: .*nobody there"):
        checkpoints.steps()


def test_name_that_is_taken_there_is_refused_and_a_free_number_is_found(checkpoints, store):
    shutil.rmtree("runs")
    with pytest.raises(RunError, match=f"{WHERE}/it, where checkpoint.path has the run's, exists already"):
        create(session())
    first = create(session(run={"name": None}))
    shutil.rmtree("runs")
    assert (first.name, create(session(run={"name": None})).name) == ("lenet-digits-1", "lenet-digits-2")


def test_bucket_that_does_not_exist_is_refused_before_anything_starts(server):
    with pytest.raises(BadInput, match=r"checkpoint\.path: nothing can be written to s3://nowhere/it: .*not exist"):
        start(session(checkpoint={"path": "s3://nowhere"}), NoWatcher())
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_removed_run_leaves_what_somebody_else_keeps_there(checkpoints, store):
    save(checkpoints, 2)
    store.pipe_file("bucket/checkpoints/it/notes.txt", b"mine")
    remove(RunDirectory("runs/it"))
    assert store.find("bucket") == ["bucket/checkpoints/it/notes.txt"]


@pytest.mark.slow  # two lives, and two whole runs to compare with
def test_run_is_resumed_evaluated_exported_and_removed_from_a_store_bit_for_bit(store):
    workers = {"workers": 2}
    whole = start(session(run={"name": "whole"}, train={"steps": 6}, strategy=workers), NoWatcher()).directory
    directory = start(session(strategy=workers), NoWatcher()).directory
    assert not list(directory.checkpoints.glob("step-*"))
    assert Checkpoints(directory.checkpoints).steps() == [2, 4]
    ended = resume(directory, NoWatcher(), ["train.steps=6"])
    assert (ended.state, ended.step) == ("finished", 6)
    theirs, ours = (Checkpoints(one.checkpoints).verify(6).files for one in (whole, directory))
    for name in ("model.safetensors", "rank-0.pt", "rank-1.pt"):  # plain SGD remembers nothing
        assert ours[name] == theirs[name]
    assert command(["export", "it"]) == 0
    assert command(["evaluate", "it"]) == 0
    assert command(["show", "it"]) == 0
    assert command(["rm", "--yes", "it", "whole"]) == 0
    assert store.find("bucket") == []


@pytest.mark.slow  # two lives
def test_servers_and_workers_write_to_a_store_and_go_on_from_there(store):
    served = {"workers": 2, "consistency": "ssp", "exchange": {"name": "server", "servers": 2}}
    directory = start(session(strategy=served), NoWatcher()).directory
    ended = resume(directory, NoWatcher(), ["train.steps=6"])
    assert (ended.state, ended.step) == ("finished", 6)
    assert Checkpoints(directory.checkpoints).verify(6).step == 6
