"""A run directory is made whole or not at all, and never over something that exists."""

import os
import stat
import subprocess
import sys

import pytest

from volary.errors import RunError, SettingError, VolaryError
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

MAKE = """
import sys
from pathlib import Path
from volary.errors import RunError
from volary.run.directory import RunDirectory
print("ready", flush=True)
sys.stdin.readline()
try:
    print(RunDirectory.create(Path("runs"), {name}, "stem", "session").name)
except RunError as error:
    print("refused", error)
"""


def make(tmp_path, name=None, stem="lenet-digits", yaml="network: lenet\n"):
    return RunDirectory.create(tmp_path / "runs", name, stem, yaml)


def test_a_new_run_has_its_session_environment_key_database_and_folders(tmp_path):
    run = make(tmp_path, "mine")
    assert run.name == "mine"
    assert run.session.read_text() == "network: lenet\n"
    assert '"torch"' in run.environment.read_text()
    assert len(run.key()) == 32
    assert run.log(3).parent.is_dir()
    assert run.checkpoints.is_dir()
    assert run.verdicts.is_dir()
    with RunReader(run) as reader:
        assert reader.state() == "new"
    assert [path.name for path in run.path.parent.iterdir()] == ["mine"]


def test_the_key_is_for_its_owner_alone_and_for_one_run(tmp_path):
    one, two = make(tmp_path), make(tmp_path)
    assert stat.S_IMODE((one.path / "key").stat().st_mode) == 0o600
    assert one.key() != two.key()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_run_is_for_its_owner_alone_until_its_owner_opens_it(tmp_path, umask):
    (tmp_path / "runs").mkdir()
    before = os.umask(umask)
    try:
        run = make(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    run.path.chmod(0o755)
    assert stat.S_IMODE((run.path / "key").stat().st_mode) == 0o600, "the key stays its owner's"


@pytest.mark.parametrize("content", [None, "not hexadecimal"])
def test_a_missing_or_damaged_key_is_a_sentence(tmp_path, content):
    run = make(tmp_path)
    (run.path / "key").unlink()
    if content:
        (run.path / "key").write_text(content)
    with pytest.raises(RunError, match=r"key cannot be read \(.*\); put the run's own key there"):
        run.key()


def test_without_a_name_the_first_free_number_is_taken(tmp_path):
    assert [make(tmp_path).name for _ in range(3)] == ["lenet-digits-1", "lenet-digits-2", "lenet-digits-3"]
    os.rename(tmp_path / "runs/lenet-digits-2", tmp_path / "runs/kept")  # noqa: PTH104
    assert make(tmp_path).name == "lenet-digits-2"


@pytest.mark.parametrize("name", ["", ".hidden", "-dash", "a/b", "../up", "two words", "x" * 101, "ends\n", "ümlaut"])
def test_a_name_that_is_no_plain_folder_name_is_refused(tmp_path, name):
    with pytest.raises(SettingError, match=r"run.name is .*accepted: letters, digits"):
        make(tmp_path, name)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("what", ["run", "empty folder", "file"])
def test_a_name_that_exists_is_refused_and_what_is_there_stays(tmp_path, what):
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs/mine"
    if what == "run":
        make(tmp_path, "mine", yaml="the first")
    elif what == "file":
        path.write_text("notes")
    else:
        path.mkdir()
    with pytest.raises(RunError, match=r"exists already; choose another run.name, or resume it: volary resume "):
        make(tmp_path, "mine", yaml="the second")
    assert what != "run" or (path / "session.yaml").read_text() == "the first"
    assert what != "file" or path.read_text() == "notes"
    assert what != "empty folder" or not list(path.iterdir())
    assert [entry.name for entry in path.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize(("name", "outcomes"), [("mine", 1), (None, 4)])
def test_of_processes_that_make_the_same_run_at_once_exactly_one_gets_the_name(tmp_path, name, outcomes):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE.format(name=repr(name))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = [racer.communicate(timeout=300)[0].strip() for racer in racers]
    won = [line for line in said if not line.startswith("refused")]
    assert len(set(won)) == len(won) == outcomes, said
    assert all("exists already" in line for line in said if line not in won)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted(won)


def test_a_folder_that_cannot_hold_runs_is_a_sentence(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RunError, match=r"no run can be made in .*runs: File exists"):
        make(tmp_path)


def test_what_a_killed_process_left_of_a_new_run_is_cleared_later_but_not_at_once(tmp_path):
    make(tmp_path)
    old, fresh = (tmp_path / "runs" / f".new-{name}" for name in ("1-old", "2-fresh"))
    old.mkdir()
    fresh.mkdir()
    os.utime(old, (0, 0))
    make(tmp_path)
    assert not old.exists()
    assert fresh.exists()


def test_a_run_is_found_by_path_or_by_name(tmp_path):
    run = make(tmp_path, "mine")
    assert RunDirectory.existing(run.path).path == run.path
    assert RunDirectory.existing("mine", tmp_path / "runs").path == run.path
    with pytest.raises(RunError, match=r"no run at other and none called 'other' in .*`volary runs` lists"):
        RunDirectory.existing("other", tmp_path / "runs")


def elsewhere(tmp_path, name=None):
    return RunDirectory.create(tmp_path / "runs", name, "stem", "network: lenet\n", checkpoints=tmp_path / "large/disk")


def test_checkpoints_have_a_folder_of_the_run_s_name_elsewhere_that_is_its_owner_s_alone(tmp_path):
    one, two = elsewhere(tmp_path), elsewhere(tmp_path)
    there = tmp_path / "large" / "disk"
    assert sorted(path.name for path in there.iterdir()) == [one.name, two.name] == ["stem-1", "stem-2"]
    assert one.checkpoints.resolve() == there / "stem-1"
    assert stat.S_IMODE((there / "stem-1").stat().st_mode) == 0o700


def test_folder_elsewhere_that_another_run_has_is_never_shared(tmp_path):
    (tmp_path / "large" / "disk" / "mine").mkdir(parents=True)
    with pytest.raises(
        RunError, match=r"disk/mine, where checkpoint\.path has the run's, exists already; choose another"
    ):
        elsewhere(tmp_path, "mine")
    (tmp_path / "large" / "disk" / "stem-1").mkdir()
    assert elsewhere(tmp_path).name == "stem-2"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["stem-2"]


@pytest.mark.parametrize("name", [None, "mine"])
def test_a_file_where_checkpoints_are_to_have_a_folder_is_named(tmp_path, name):
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "disk").write_text("a file")
    with pytest.raises(RunError, match=r"checkpoint.path: .*/large/disk cannot be made: "):
        elsewhere(tmp_path, name)


def test_folder_elsewhere_that_cannot_be_made_is_named_and_no_run_is_left(tmp_path):
    (tmp_path / "large").write_text("a file")
    with pytest.raises(VolaryError, match=r"checkpoint.path: .*/large/disk cannot be made: "):
        elsewhere(tmp_path, "mine")
    assert list((tmp_path / "runs").iterdir()) == []
