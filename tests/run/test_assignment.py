"""Processes receive the assignment of their run, and read it on a machine with other folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from volary.run.directory import RunDirectory
from volary.run.launch.assignment import Assignment
from volary.run.launch.meeting import Meeting, announce

MEETING = Meeting("fd00::7", 4711, attempt=2, attempt_id="one")


def test_assignment_is_found_as_it_was_given():
    given = Assignment(directory=Path("/runs/it"), meeting=MEETING, job="a:b", key=b"key", folder=Path("/home/me"))
    assert Assignment.found(given.variables()) == given


def test_key_is_told_to_those_alone_that_may_not_see_the_directory_and_never_shown():
    seen = Assignment(directory=Path("/runs/it"), meeting=MEETING)
    assert not any("KEY" in name for name in seen.variables())
    assert "secret" not in repr(replace(seen, key=b"secret"))


def test_directory_is_seen_where_it_is_the_very_one_and_paths_mean_the_same():
    directory = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")
    given = Assignment(directory=directory.path, meeting=MEETING, folder=Path.cwd())
    assert not given.is_seen
    announce(directory, MEETING)
    assert given.is_seen
    assert not replace(given, meeting=replace(MEETING, attempt_id="another")).is_seen  # a copy of an earlier day
    assert not replace(given, folder=Path("/elsewhere")).is_seen


def test_directory_whose_checkpoints_are_elsewhere_is_seen_where_they_are_too():
    directory = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n", checkpoints=Path("large"))
    given = Assignment(directory=directory.path, meeting=MEETING)
    announce(directory, MEETING)
    assert given.is_seen
    (Path("large") / "it").rename("unmounted")
    assert not given.is_seen


def test_paths_below_the_working_directory_are_below_that_of_the_other_machine_and_no_other_is_changed():
    given = Assignment(directory=Path("/runs/it"), meeting=MEETING, folder=Path("/home/me"))
    session = 'a: "/home/me/net.py:Net"\nb: lib:f in /home/me\nc: /home/means/x\n'
    here = Path.cwd()
    assert given.moved(session) == f'a: "{here}/net.py:Net"\nb: lib:f in {here}\nc: /home/means/x\n'
    assert replace(given, folder=None).moved(session) == session
