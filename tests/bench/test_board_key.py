"""Where the ranks of a measurement meet: nothing that anyone may have written is taken for their key."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from volary.bench.meeting import _key
from volary.errors import RunError
from volary.placement import Place

PLACE = Place(
    launcher="torchrun", rank=1, world_size=2, local_rank=1, node=0, attempt=0, meet="localhost:29500", launch="none"
)
KEY = secrets.token_bytes(32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(KEY)
    return path


def test_a_key_in_a_file_of_ours_that_nobody_else_can_read_is_taken(file: Path) -> None:
    assert _key(PLACE, {"key_file": str(file)}) == KEY


def test_a_key_in_a_file_that_others_can_read_or_write_is_refused(file: Path) -> None:
    for mode in (0o604, 0o602):
        file.chmod(mode)
        with pytest.raises(RunError, match="by other users"):
            _key(PLACE, {"key_file": str(file)})


def test_a_key_that_stands_in_a_launchers_store_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        _key(PLACE, {"key": KEY.hex()})
    assert _key(replace(PLACE, launcher="lab", meet=str(tmp_path / "board")), {"key": KEY.hex()}) == KEY
