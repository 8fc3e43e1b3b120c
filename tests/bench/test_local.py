"""Ranks on this machine: started, followed, ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from volary.bench import local

RANK = """
import os, sys, time
from pathlib import Path
rank = os.environ["VOLARY_RANK"]
Path(f"pid-{rank}").write_text(str(os.getpid()))
"""


def run(then: str, workers: int = 2, **settings: float) -> int:
    return local.run([sys.executable, "-c", RANK + then], workers, **settings)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_rank_knows_who_it_is_and_where_all_meet():
    place = "os.environ['VOLARY_WORLD_SIZE'] + str(os.path.exists(os.environ['VOLARY_MEET']))"
    assert run(f"Path(f'at-{{rank}}').write_text({place})", 3) == 0
    assert [Path(f"at-{rank}").read_text() for rank in range(3)] == ["3True"] * 3


@pytest.mark.parametrize(("end", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_the_status_is_that_of_who_failed_and_the_others_are_ended(monkeypatch, end, status):
    monkeypatch.setattr(local, "OTHERS_WITHIN_S", 0.2)
    assert run(f"{end} if rank == '1' else time.sleep(600)") == status
    assert not any(alive(int(path.read_text())) for path in Path().glob("pid-*"))


def test_nobody_outlives_the_time():
    with pytest.raises(TimeoutError):
        run("time.sleep(60)", timeout_s=0.5)
    assert not any(alive(int(path.read_text())) for path in Path().glob("pid-*"))
