"""Measurements of collectives are kept, and found again."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from volary.comm.topology import switch_points
from volary.comm.topology.switch_points import COLLECTIVES, SwitchPoints, keep, key, load
from volary.comm.topology.topology import Topology

HERE, THERE = Topology.of([0, 1], [2, 3]), Topology.of([0], [1], [2], [3])
LARGEST = dict.fromkeys(COLLECTIVES, 2**20)
POINTS = SwitchPoints({name: [(1024, "tree"), (65536, "chain")] for name in COLLECTIVES}, LARGEST)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_fastest_way_is_named_for_every_size():
    assert [POINTS.best("reduce", size) for size in (0, 1024, 65535, 65536, 2**20)] == [*["tree"] * 3, *["chain"] * 2]
    assert POINTS.best("reduce", 2**20 + 1) is None, "nobody knows what is beyond the largest size that was measured"


def test_another_way_is_taken_only_where_it_is_clearly_faster():
    times = {
        1024: {"tree": 1.0, "chain": 2.0},
        4096: {"tree": 1.0, "chain": 0.95},
        16384: {"tree": 4.0, "chain": 2.0},
        65536: {"tree": 7.9, "chain": 8.0},
    }
    assert SwitchPoints.of({"broadcast": times}).ways == {"broadcast": [(1024, "tree"), (16384, "chain")]}


def test_what_is_kept_is_found_by_the_machines_and_their_ranks():
    assert load(HERE, "gloo") is None
    keep(HERE, "gloo", POINTS)
    other = SwitchPoints({name: [(1024, "torch")] for name in COLLECTIVES}, LARGEST)
    file = keep(THERE, "gloo", other)
    assert load(HERE, "gloo").best("broadcast", 10**6) == "chain"
    assert load(THERE, "gloo").best("broadcast", 10**6) == "torch"
    assert load(HERE, "nccl") is None
    assert [path.name for path in file.parent.iterdir()] == ["collectives.json"]


def test_what_was_measured_on_links_of_another_speed_is_not_taken():
    keep(replace(HERE, within_bytes_per_s=110e6), "gloo", POINTS)
    assert load(replace(HERE, within_bytes_per_s=125e6), "gloo") is not None
    assert load(replace(HERE, within_bytes_per_s=12e6), "gloo") is None
    assert load(HERE, "gloo") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"gloo": 3}', '{"gloo": {"volary": "1", "ways": {"reduce": [[1]]}}}', "\x00"]
)
def test_a_damaged_file_is_ignored_with_one_sentence_and_replaced(text, caplog):
    path = switch_points.file()
    path.parent.mkdir()
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert load(HERE, "gloo") is None
    assert len(caplog.messages) == 1
    assert "is ignored, as it cannot be read" in caplog.messages[0]
    keep(HERE, "gloo", POINTS)
    assert load(HERE, "gloo") is not None


@pytest.mark.parametrize("change", [{"volary": "0"}, {"ways": {}}, {"ways": {"reduce": [[1, "tree"]]}}])
def test_what_another_version_measured_or_is_not_whole_is_not_taken(change):
    path = keep(HERE, "gloo", POINTS)
    known = json.loads(path.read_text())
    known[key(HERE, "gloo")] |= change
    path.write_text(json.dumps(known))
    assert load(HERE, "gloo") is None


def test_a_cache_that_cannot_be_written_leaves_the_old_file(monkeypatch):
    path = keep(HERE, "gloo", POINTS)
    before = path.read_bytes()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        keep(THERE, "gloo", POINTS)
    assert [one.name for one in path.parent.iterdir()] == ["collectives.json"]
    assert path.read_bytes() == before
