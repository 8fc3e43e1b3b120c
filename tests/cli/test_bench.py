"""`volary bench collectives`: what it accepts, measures, prints and keeps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from volary.comm.topology.switch_points import COLLECTIVES
from volary.lab import Lab, LabError
from volary.lab.timeline import Timeline

COMMAND = [sys.executable, "-m", "volary", "bench", "collectives"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def kept() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(
        Path(os.environ["XDG_CACHE_HOME"], "volary/collectives.json").read_text()
    )
    return found


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--sizes", "1kb,much"], "--sizes has 'much'; accepted: sizes as in 1kb,64kb,16mb"),
        (["--sizes", "0"], "--sizes has '0'"),
        (["--workers", "1"], "1 is not in the range x>=2"),
    ],
)
def test_what_cannot_be_is_refused(arguments, sentence, volary):
    said = volary("bench", "collectives", *arguments)
    assert said.status == 2
    assert sentence in said.err


def test_a_number_of_workers_is_refused_where_a_launcher_has_started_them(volary, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"):
        monkeypatch.setenv(name, "1" if name == "WORLD_SIZE" else "0")
    monkeypatch.setenv("VOLARY_LAB_MEET", "/dev/null")
    monkeypatch.setenv("VOLARY_LAB_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("VOLARY_LAB_HOSTS", "h0")
    said = volary("bench", "collectives", "--workers", 2)
    assert (said.status, said.out) == (2, "")
    assert "--workers is 2, but lab has started 1 ranks; leave it out" in said.err


def test_ranks_of_an_unknown_launcher_are_refused(volary, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    said = volary("bench", "collectives")
    assert said.status == 2
    assert "no launcher started this process" in said.err


@pytest.mark.slow  # measures; tests/bench has the choice
def test_all_collectives_are_measured_and_the_fastest_ways_kept(volary):
    said = volary("bench", "collectives", "--workers", 2, "--sizes", "1kb", "--time", 3, "--json")
    assert said.status == 0, said.err
    found = json.loads(said.out)
    assert set(found["seconds"]) == set(found["best_from"]) == set(COLLECTIVES)
    assert set(found["seconds"]["broadcast"]["1024"]) == {"torch", "tree", "chain"}
    assert all(s > 0 for sizes in found["seconds"].values() for ways in sizes.values() for s in ways.values())
    assert not any(way == "torch" for name in COLLECTIVES[1:] for _, way in found["best_from"][name])
    (entry,) = kept().values()
    assert entry["ways"] == found["best_from"]


@pytest.mark.slow
def test_without_json_it_prints_a_table_and_what_was_left_out(volary):
    said = volary("bench", "collectives", "--sizes", "1kb,64mb", "--time", 1)
    assert said.status == 0, said.err
    assert re.search(r"^broadcast\n +size +torch +tree +chain\n1.0 KiB +[0-9.]+ ", said.out, re.MULTILINE)
    assert "fastest of ours: " in said.out
    assert "left out: broadcast of 67108864 bytes and more: the time was over" in said.err


@pytest.mark.slow
def test_under_torchrun_rank_0_prints():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
    words = [*torchrun, *COMMAND, "--sizes", "1kb", "--time", "6", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["seconds"]) == set(COLLECTIVES)


@pytest.mark.slow
@pytest.mark.root
def test_in_a_lab_hosts_are_nodes():
    board = os.memfd_create("board")
    try:
        with Path("out").open("wb") as out, Lab(2, "1gbit") as lab:
            meet = {"VOLARY_LAB_MEET": f"/proc/self/fd/{board}"}
            words = [*COMMAND, "--sizes", "1kb,64kb", "--time", "6"]
            with lab.launch(words, procs=2, env=meet, outputs=[out] * 4, keep=[board]) as ranks:
                assert ranks.follow(lab, Timeline([], lab.topology), 100).status == 0, Path("out").read_text()
    except LabError as reason:
        pytest.skip(str(reason))
    finally:
        os.close(board)
    assert "2 nodes of 2 ranks" in Path("out").read_text()
    assert list(kept()) == ["gloo: h0*2 h1*2"]
