import os
import time

import pytest

from volary.errors import RunError
from volary.run.directory import RunDirectory
from volary.run.disk import Disk
from volary.run.removing import bytes_of, remove


def new(tmp_path, name="mine"):
    return RunDirectory.create(tmp_path / "runs", name, "stem", "network: lenet\n")


def test_a_run_is_removed_whole_and_no_other(tmp_path):
    run, other = new(tmp_path), new(tmp_path, "other")
    (run.checkpoints / "step-00000001").mkdir()
    (run.checkpoints / "step-00000001" / "model").write_bytes(b"x" * 5000)
    assert bytes_of(run) > bytes_of(other) + 4000
    remove(run)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["other"]


def test_checkpoints_elsewhere_count_and_go_with_their_run_and_nothing_else_does(tmp_path):
    runs = [RunDirectory.create(tmp_path / "runs", None, "it", "x", checkpoints=tmp_path / "there") for _ in range(2)]
    for run in runs:
        (run.checkpoints / "step-00000001").mkdir()
        (run.checkpoints / "step-00000001" / "model").write_bytes(b"x" * 5000)
    (tmp_path / "there" / "it-2" / "somebody's").write_text("else")
    assert bytes_of(runs[0]) > 5000
    link = tmp_path / "runs" / "link"
    link.symlink_to(runs[0].path)
    remove(RunDirectory(link))
    assert (tmp_path / "there" / "it-1" / "step-00000001").is_dir()
    for run in runs:
        remove(run)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [
        "there/it-2/somebody's"
    ]


def test_a_run_that_is_being_written_is_refused_and_stays(tmp_path):
    run = new(tmp_path)
    with run.lock(), pytest.raises(RunError, match="mine is running; end it first"):
        remove(run)
    assert run.database.is_file()


def test_a_link_to_a_run_is_removed_and_the_run_stays(tmp_path):
    run = new(tmp_path)
    link = tmp_path / "runs" / "link"
    link.symlink_to(run.path)
    remove(RunDirectory(link))
    assert not link.is_symlink()
    assert run.database.is_file()


def test_a_removal_that_is_killed_leaves_no_run_and_the_next_run_clears_what_it_left(tmp_path):
    class Dies(Disk):
        def remove(self, path):
            if path.exists():
                raise KeyboardInterrupt

    run = new(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        remove(run, Dies())
    assert RunDirectory.all_in(tmp_path / "runs") == []
    (left,) = (tmp_path / "runs").iterdir()
    an_hour_ago = time.time() - 3601
    os.utime(left, (an_hour_ago, an_hour_ago))
    new(tmp_path, "next")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["next"]


def test_a_removal_that_the_disk_refuses_leaves_the_run_as_it_was(tmp_path):
    class Refuses(Disk):
        def rename(self, old, new):
            raise PermissionError(13, "Permission denied")

    run = new(tmp_path)
    with pytest.raises(RunError, match="cannot be removed: Permission denied"):
        remove(run, Refuses())
    assert run.database.is_file()
