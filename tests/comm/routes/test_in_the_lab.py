"""Routes over hosts that share nothing but links: what is found of them, and what their counters show."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from volary.lab import Lab, LabError
from volary.lab.needs import needs_user_namespace

pytestmark = pytest.mark.root
TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _allowed() -> None:
    try:
        needs_user_namespace()
    except LabError as reason:
        pytest.skip(str(reason))


def run(lab: Lab, folder: Path, name: str, numel: int, procs: int = 1) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "comm.routes._lab_rank", name, str(numel)]
    ended = lab.run(command, procs=procs, env={"PYTHONPATH": str(TESTS)}, timeout_s=300, log_dir=folder)
    logs = [path.read_text() for path in sorted(folder.glob("rank-*.log"))]
    assert ended.status == 0, logs
    return [json.loads(log.splitlines()[-1]) for log in logs]


@pytest.mark.slow  # a lab; tests/comm/routes count bytes in processes
def test_two_levels_put_on_a_hosts_link_what_one_rank_a_host_would(tmp_path):
    numel = 5_000_000
    with Lab(hosts=2, rate="1gbit") as lab:
        ranks = run(lab, tmp_path, "two_level", numel, procs=2)
        sent = [lab.counters(host).sent_bytes for host in range(2)]
    assert all(rank["exact"] and rank["nodes"] == [[0, 1], [2, 3]] for rank in ranks)
    assert all(rank["hosts"] == ["h0", "h1"] for rank in ranks)
    least = 2 * (2 - 1) / 2 * 4 * numel
    for host, count in enumerate(sent):
        its_ranks = ranks[2 * host : 2 * host + 2]
        assert sum(rank["sent_bytes"] for rank in its_ranks) == pytest.approx(least, rel=0.001)
        assert least < count - sum(rank["measuring_bytes"] for rank in its_ranks) < 1.02 * least


@pytest.mark.slow
def test_a_trunk_that_was_not_there_when_links_were_kept_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Lab(hosts=4, rate="200mbit", groups=2) as lab:
        before = run(lab, tmp_path, "ring", 1000)
        kept = (tmp_path / "cache/volary/links.json").read_text()
    with Lab(hosts=4, rate="200mbit", groups=2, trunk="10mbit") as lab:
        after = run(lab, tmp_path, "three_level", 1000)
    assert all(rank["subnetworks"] == [[0, 1, 2, 3]] for rank in before)
    assert all(rank["subnetworks"] == [[0, 1], [2, 3]] for rank in after)
    assert kept != (tmp_path / "cache/volary/links.json").read_text()


@pytest.mark.slow
def test_sub_networks_behind_a_slow_trunk_are_found_and_the_trunk_is_spared(tmp_path):
    numel = 2_000_000
    with Lab(hosts=4, rate="200mbit", groups=2, trunk="20mbit") as lab:
        ranks = run(lab, tmp_path, "three_level", numel)
    assert all(rank["exact"] and rank["subnetworks"] == [[0, 1], [2, 3]] for rank in ranks)
    assert len({rank["said"] for rank in ranks}) == 1
    assert "2 sub-networks (h0+h1, h2+h3; measured)" in ranks[0]["said"]


@pytest.mark.slow
def test_hosts_on_one_switch_are_one_sub_network(tmp_path):
    with Lab(hosts=4, rate="100mbit", slow={3: "20mbit"}) as lab:
        ranks = run(lab, tmp_path, "ring", 100_000)
    assert all(rank["exact"] and rank["subnetworks"] == [[0, 1, 2, 3]] for rank in ranks)
