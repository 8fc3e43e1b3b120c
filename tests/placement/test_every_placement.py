"""Promises of every placement, over all files of the room: a new one is tested the moment it exists."""

from __future__ import annotations

import pytest

from placement._recorded import RECORDED, Recorded
from volary.errors import BadInput
from volary.placement import ROOM, find


@pytest.mark.parametrize("name", ROOM.names())
def test_a_placement_does_not_recognise_a_process_that_nobody_launched(name: str) -> None:
    assert ROOM.load(name)().find({"PATH": "/bin", "RANK": "0", "WORLD_SIZE": "1"}) is None


@pytest.mark.parametrize("name", ROOM.names())
def test_a_placement_is_tested_with_what_its_launcher_really_sets(name: str) -> None:
    assert any(recorded.launcher == name for recorded in RECORDED), "record it in _recorded.py"


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one.by)
def test_a_process_finds_the_place_that_its_launcher_gave(recorded: Recorded) -> None:
    place = find(recorded.variables)
    assert place.launcher == recorded.launcher
    assert {name: getattr(place, name) for name in recorded.place} == recorded.place


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one.by)
def test_a_variable_that_is_missing_is_named_or_leaves_a_process_that_nobody_launched(recorded: Recorded) -> None:
    for name in recorded.variables:
        rest = {key: value for key, value in recorded.variables.items() if key != name}
        with pytest.raises(BadInput, match=f"variable {name} is missing|no launcher started this process"):
            find(rest)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one.by)
def test_a_rank_that_is_no_number_is_named(recorded: Recorded) -> None:
    named = [key for key in recorded.variables if key.endswith(("RANK", "WORLD_SIZE", "PROCID", "NTASKS", "PMI_SIZE"))]
    assert named
    for name in named:
        with pytest.raises(BadInput, match=f"its {name} is 'x'; accepted: a whole number"):
            find(recorded.variables | {name: "x"})
