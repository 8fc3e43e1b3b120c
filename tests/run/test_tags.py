import pytest

from volary.errors import BadInput, RunError
from volary.run.directory import RunDirectory
from volary.run.tags import FILE, Tags, read_tags, write_tags


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")


def test_tags_and_a_note_are_kept_beside_the_run_also_while_it_is_written(run):
    assert read_tags(run) == Tags()
    with run.lock():
        write_tags(run, Tags().changed(["good", "lr:0.1", "good"], note="two\nlines"))
    assert read_tags(run) == Tags(("good", "lr:0.1"), "two\nlines")
    write_tags(run, read_tags(run).changed(["base"], remove=["good"]))
    assert read_tags(run) == Tags(("lr:0.1", "base"), "two\nlines"), "a note stays until another one is given"


@pytest.mark.parametrize("tag", ["", "two words", "a,b", "x" * 51, "\x1b[31m"])
def test_a_tag_that_could_not_be_told_apart_from_others_in_a_list_is_refused(tag):
    with pytest.raises(BadInput, match="accepted: 1 to 50 letters"):
        Tags().changed([tag])


def test_taking_a_tag_away_that_is_not_there_names_those_that_are():
    with pytest.raises(BadInput, match="no tag 'goof'; there are: good, base"):
        Tags(("good", "base")).changed(remove=["goof"])


def test_too_long_a_note_and_too_many_tags_are_refused():
    with pytest.raises(BadInput, match="10,001 characters"):
        Tags().changed(note="x" * 10_001)
    with pytest.raises(BadInput, match="101 tags"):
        Tags().changed([str(number) for number in range(101)])


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tags": ["two words"]}', b'{"tags": 3}', b"\xff"])
def test_a_broken_file_of_tags_is_as_none(run, content):
    (run.path / FILE).write_bytes(content)
    assert read_tags(run) == Tags()


def test_a_folder_that_is_gone_is_told(run):
    run.path.rename(run.path.with_name("elsewhere"))
    with pytest.raises(RunError, match=r"tags\.json: cannot be written"):
        write_tags(run, Tags(("a",)))
