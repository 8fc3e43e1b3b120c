"""Whether a place can be written is tried before anything is done, and nothing is left of the attempt."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from volary.errors import BadInput
from volary.run.disk import refuse_unwritable


def test_a_folder_that_would_be_made_is_accepted_and_not_made():
    refuse_unwritable("run.folder", Path("a/b/c"), make=True)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("place", "make"), [("/proc/nowhere", True), ("file", True), ("file/below", True), ("a/b", False)]
)
def test_a_place_where_nothing_can_be_made_is_named(place, make):
    Path("file").touch()
    with pytest.raises(BadInput, match=f"^run.folder: {place} cannot be written: .+; accepted: a f"):
        refuse_unwritable("run.folder", Path(place), make=make)
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_several_may_try_a_folder_at_once():
    def make() -> None:
        for _ in range(300):
            refuse_unwritable("run.folder", Path("runs/sweep"), make=True)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(make) for _ in range(8)]:
            done.result()
    assert list(Path().iterdir()) == []
