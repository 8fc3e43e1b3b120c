"""Which checkpoints count, which are whole, and what is said of those that are not."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.errors import RunError
from volary.run import checkpoints as room
from volary.run.checkpoints import MANIFEST, Checkpoints, Manifest, as_dict, digest, read
from volary.run.directory import RunDirectory
from volary.run.disk import Disk
from volary.run.resuming import resuming

FILES = {"model.safetensors": b"weights" * 40, "rank-0.pt": b"zero" * 30, "rank-1.pt": b"one" * 30}


class Quick(Disk):
    def sync(self, path):
        assert path.exists()


def save(checkpoints, step, metric=None, files=FILES):
    checkpoints.begin(step)
    sums = {name: checkpoints.write(step, name, data) for name, data in files.items()}
    return checkpoints.commit(step, 2, sums, metric)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", Quick())


def test_a_run_without_checkpoints_has_none(checkpoints):
    assert checkpoints.steps() == []
    assert checkpoints.newest_whole() == (None, [])
    with pytest.raises(RunError, match=r"step-00000007.*not a readable manifest"):
        checkpoints.manifest(7)


def test_a_checkpoint_is_found_by_its_step_with_its_facts_and_files(checkpoints):
    path = save(checkpoints, 12, metric=0.25)
    manifest = checkpoints.verify(12)
    assert (path, checkpoints.steps()) == (checkpoints.path(12), [12])
    assert as_dict(manifest) == {"step": 12, "world_size": 2, "metric": 0.25}
    assert manifest.files == {name: digest(data) for name, data in FILES.items()}
    assert read(path, manifest, "rank-1.pt") == FILES["rank-1.pt"]
    with pytest.raises(RunError, match=r"has no rank-2.pt; it holds model.safetensors, rank-0.pt, rank-1.pt"):
        read(path, manifest, "rank-2.pt")


def test_a_run_that_is_moved_while_it_trains_does_not_come_back_as_a_folder_of_checkpoints(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    run.session.write_text("network: lenet")
    checkpoints = Checkpoints(run.checkpoints, Quick())
    save(checkpoints, 12)
    assert "resume from step 12" in resuming(run)
    run.path.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"removed it while the run trained; move it back"):
        checkpoints.begin(20)
    assert not run.path.exists()
    assert resuming(run) == "", "the command would not work"


def test_a_folder_without_a_manifest_or_with_another_name_is_no_checkpoint(checkpoints):
    save(checkpoints, 12)
    checkpoints.begin(20)
    checkpoints.write(20, "rank-0.pt", b"half")
    (checkpoints.folder / "step-00000030").mkdir()
    checkpoints.path(12).joinpath("extra").write_bytes(b"")
    copy = checkpoints.folder / "step-00000012-backup"
    copy.mkdir()
    (copy / MANIFEST).write_bytes((checkpoints.path(12) / MANIFEST).read_bytes())
    assert checkpoints.steps() == [12]


def test_a_folder_that_was_renamed_is_not_taken_for_another_step(checkpoints):
    save(checkpoints, 12).rename(checkpoints.folder / "step-00000099")
    with pytest.raises(RunError, match="is of step 12, not 99"):
        checkpoints.verify(99)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_flipped_byte_in_any_file_is_found_and_the_previous_checkpoint_used(checkpoints, name):
    save(checkpoints, 10)
    path = save(checkpoints, 20) / name
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        found, warnings = checkpoints.newest_whole()
        assert found is not None
        assert found.step == 10, f"byte {place} of {name}"
        assert len(warnings) == 1
        assert warnings[0].startswith(f"{path}: ")
        assert "damaged" in warnings[0] or name == MANIFEST


@given(name=st.sampled_from([*FILES, MANIFEST]), keep=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_found(tmp_path_factory, name, keep):
    checkpoints = Checkpoints(tmp_path_factory.mktemp("checkpoints"), Quick())
    path = save(checkpoints, 20) / name
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    assert checkpoints.newest_whole()[0] is None


def test_a_missing_file_is_named(checkpoints):
    (save(checkpoints, 20) / "rank-0.pt").unlink()
    assert checkpoints.newest_whole()[1] == [
        f"{checkpoints.path(20) / 'rank-0.pt'}: cannot be read: No such file or directory"
    ]


@given(data=st.binary(max_size=200))
def test_a_manifest_of_any_bytes_is_refused_in_a_sentence(tmp_path_factory, data):
    checkpoints = Checkpoints(tmp_path_factory.mktemp("checkpoints"), Quick())
    (save(checkpoints, 20) / MANIFEST).write_bytes(data)
    with pytest.raises(RunError, match="not a readable manifest"):
        checkpoints.verify(20)


def test_saving_a_step_again_replaces_a_damaged_checkpoint(checkpoints):
    path = save(checkpoints, 20, metric=0.1)
    (path / "rank-0.pt").write_bytes(b"damaged")
    save(checkpoints, 20, metric=0.2)
    assert checkpoints.verify(20).metric == 0.2
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-00000020"]


def test_pruning_keeps_the_newest_and_the_best(checkpoints):
    for step in (10, 20, 30, 40, 50):
        save(checkpoints, step)
    checkpoints.prune(keep_last=2, keep=20)
    assert checkpoints.steps() == [20, 40, 50]
    checkpoints.prune(keep_last=2, keep=None)
    assert checkpoints.steps() == [40, 50]
    checkpoints.prune(keep_last=9, keep=None)
    assert checkpoints.steps() == [40, 50]


def test_a_manifest_does_not_change(checkpoints):
    with pytest.raises(dataclasses.FrozenInstanceError):
        Manifest(1, 1, {}).step = 2  # type: ignore[misc]


def test_a_run_is_taken_up_at_its_newest_whole_checkpoint_and_damaged_newer_ones_are_set_aside(checkpoints):
    for step in (10, 20, 30, 40):
        save(checkpoints, step)
    (checkpoints.path(30) / "rank-0.pt").write_bytes(b"damaged")
    (checkpoints.path(40) / MANIFEST).unlink()
    found, warnings = checkpoints.take_up()
    assert found is not None
    assert (found.step, len(warnings)) == (20, 2)
    assert all(text.endswith("; the checkpoint of step 20 is used") for text in warnings)
    assert f"{checkpoints.folder / 'step-00000040' / MANIFEST}: missing" in warnings[1]
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        "damaged-step-00000030",
        "damaged-step-00000040",
        "step-00000010",
        "step-00000020",
    ]
    assert checkpoints.take_up()[1] == []


@pytest.mark.parametrize("name", ["rank-0.pt", MANIFEST])
def test_a_run_whose_checkpoints_are_all_damaged_is_refused_and_keeps_them(checkpoints, name):
    for step in (10, 20):
        (save(checkpoints, step) / name).unlink()
    with pytest.raises(RunError) as caught:
        checkpoints.take_up()
    run = checkpoints.folder.parent
    assert str(caught.value).startswith(f"{run}: none of its checkpoints is whole (")
    assert str(checkpoints.folder / "step-00000010" / name) in str(caught.value)
    assert str(checkpoints.folder / "step-00000020" / name) in str(caught.value)
    assert f"or begin at step 0 with `volary resume {run} --anew`, which keeps them aside" in str(caught.value)
    assert len(list(checkpoints.folder.glob("step-*"))) == 2
    checkpoints.set_aside_after(0)
    assert checkpoints.take_up() == (None, [])
    assert len(list(checkpoints.folder.glob("damaged-step-*"))) == 2


def forged(checkpoints, name, content=b"mine"):
    """A checkpoint whose manifest is right, and names a file as `name` says."""
    path = save(checkpoints, 20)
    manifest = Manifest(20, 1, {name: digest(content)})
    (path / MANIFEST).write_bytes(room._seal(manifest))
    return path


@pytest.mark.parametrize("name", ["../../key", "/etc/hostname", "..", ".", ".hidden", "a/b", "", "a\nb", "-\N{BULLET}"])
def test_a_manifest_that_names_anything_but_plain_files_is_refused(checkpoints, name):
    path = forged(checkpoints, name)
    with pytest.raises(RunError, match=r"names the file .*; accepted: letters, digits"):
        checkpoints.verify(20)
    assert str(path / MANIFEST) in checkpoints.newest_whole()[1][0]


def make_fifo(path):
    os.mkfifo(path)


def make_link(path):
    path.with_name("elsewhere").write_bytes(b"mine")
    path.symlink_to(path.with_name("elsewhere"))


def make_folder(path):
    path.mkdir()


@pytest.mark.parametrize("make", [make_fifo, make_link, make_folder])
@pytest.mark.parametrize("name", ["rank-0.pt", MANIFEST])
def test_what_is_no_regular_file_is_refused_at_once_and_not_opened(checkpoints, name, make):
    path = forged(checkpoints, "rank-0.pt")
    (path / name).unlink()
    make(path / name)
    with pytest.raises(RunError, match="not a regular file"):
        checkpoints.verify(20)


def test_a_device_is_refused_and_not_opened(checkpoints):
    path = forged(checkpoints, "rank-0.pt", b"")
    (path / "rank-0.pt").unlink()
    (path / "rank-0.pt").symlink_to("/dev/zero")  # a link, as only root can make a device
    with pytest.raises(RunError, match="not a regular file"):
        checkpoints.verify(20)
    with pytest.raises(OSError, match="not a regular file"):
        room.open_regular(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "by a volary 0.1.0 from before 22 November 2026, in format 1;"),
        ({"format": 99, "volary": "9.9"}, "by volary 9.9, in format 99;"),
    ],
)
def test_a_checkpoint_of_another_version_is_refused_with_the_version_to_go_on_with(checkpoints, more, told):
    path = save(checkpoints, 20)
    known = {"step": 20, "world_size": 2, "files": checkpoints.manifest(20).files, **more}
    text = json.dumps(known, separators=(",", ":"))
    (path / MANIFEST).write_text(f'{{"manifest":{text},"checksum":"{digest(text.encode())}"}}')
    with pytest.raises(RunError, match=re.escape(f"{path}: was written {told}")) as refused:
        checkpoints.take_up()
    assert str(refused.value).endswith(f": resume with {told.removeprefix('by ').split(',')[0]}")
