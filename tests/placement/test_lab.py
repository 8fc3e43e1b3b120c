import threading
from pathlib import Path

import pytest

from volary.errors import BadInput
from volary.placement import find
from volary.placement._base import Place
from volary.run.launch.file_board import FileBoard

VARIABLES = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "1",
    "VOLARY_LAB_MEET": "/proc/self/fd/5",
    "VOLARY_LAB_ADDRESS": "10.0.0.2",
    "VOLARY_LAB_HOSTS": "h0 h0 h1 h1",
}


def test_a_rank_of_a_lab_knows_its_place_and_its_address():
    assert find(VARIABLES) == Place(
        launcher="lab",
        rank=3,
        world_size=4,
        local_rank=1,
        node=1,
        attempt=0,
        meet="/proc/self/fd/5",
        address="10.0.0.2",
        writes_log=True,
        hosts=("h0", "h0", "h1", "h1"),
    )


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "VOLARY_LAB_ADDRESS"])
def test_a_missing_variable_is_named(missing):
    with pytest.raises(BadInput, match=f"volary lab started this process, but its variable {missing} is missing"):
        find({name: value for name, value in VARIABLES.items() if name != missing})


def test_a_program_that_a_lab_started_without_a_meeting_point_is_no_worker():
    with pytest.raises(BadInput, match="no launcher started this process"):
        find({name: value for name, value in VARIABLES.items() if name != "VOLARY_LAB_MEET"})


def test_what_is_written_on_a_board_in_a_file_is_read_by_all_who_have_it():
    Path("board").touch()
    mine, theirs = FileBoard(Path("board")), FileBoard(Path("board"))
    assert not theirs.check(["a"])
    with pytest.raises(KeyError):
        theirs.get("a")
    mine.set("a", "one")
    mine.set("b", "two")
    mine.set("a", "1")
    assert (theirs.get("a"), theirs.check(["a", "b"]), theirs.check(["a", "c"])) == (b"1", True, False)
    assert (theirs.delete_key("b"), mine.check(["b"]), mine.delete_key("b")) == (True, False, False)


def test_nobody_overwrites_what_another_writes_at_the_same_time():
    Path("board").touch()

    def write(name):
        for number in range(20):
            FileBoard(Path("board")).set(f"{name}{number}", name)

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert FileBoard(Path("board")).check([f"{name}{number}" for name in "abcd" for number in range(20)])
