"""`train.stop_at`: a run that saves and stops on its way, and is the same run once it is resumed, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from train._served import served
from train._training import OVERLAPPED, Quick, session, trained
from volary.run.checkpoints import Checkpoints
from volary.session import Session

LOCAL = {"consistency": {"name": "local", "period": 2}}
OVER_SERVERS = {"workers": 1, "exchange": {"name": "server", "servers": 1}}


def paced(stop_at: str, **more: Any) -> Session:
    """Adam, by a schedule that knows the length of the whole run."""
    train = {"steps": 12, "stop_at": stop_at}
    evaluate = {"every": "3 steps"}
    return session("Exact", optimizer="adam", schedule="cosine", train=train, evaluate=evaluate, **more)


def in_pieces(rank: int, world_size: int, strategy: dict[str, Any]) -> tuple[Any, ...]:
    whole = trained(rank, world_size, paced("never", strategy=strategy), "whole", disk=Quick())
    parts = [
        trained(rank, world_size, paced(stop_at, strategy=strategy), "parts", disk=Quick())
        for stop_at in ("3 steps", "6 steps", "never")
    ]
    return whole, parts, Checkpoints(Path("parts")).steps()


@pytest.mark.parametrize(
    ("world_size", "strategy", "stops"),
    [
        (2, OVERLAPPED, [3, 6, 12]),
        pytest.param(
            2, LOCAL, [4, 7, 12], marks=pytest.mark.slow
        ),  # workers agree after two steps, and at epochs' ends
    ],
)
def test_a_run_that_stops_twice_on_its_way_equals_one_that_never_does(workers, world_size, strategy, stops):
    for whole, parts, saved in workers(world_size, in_pieces, strategy):
        assert [one.outcome for one in parts] == ["stopped", "stopped", "finished"]
        assert [len(one.rows) for one in parts] == [stops[0], stops[1] - stops[0], 12 - stops[1]]
        assert set(stops) <= set(saved)
        rows = [row for one in parts for row in one.rows if row.samples]  # a share without samples updates nothing
        assert [row.lr for row in rows] == [row.lr for row in whole.rows if row.samples]
        assert [pair for one in parts for pair in one.metrics] == whole.metrics
        assert all(torch.equal(parts[-1].parameters[name], one) for name, one in whole.parameters.items())


def over_servers(rank: int, world_size: int) -> Any:
    whole = served(rank, world_size, paced("never", strategy=OVER_SERVERS), "whole")
    parts = [
        served(rank, world_size, paced(at, strategy=OVER_SERVERS), "parts") for at in ("3 steps", "6 steps", "never")
    ]
    return (whole, parts) if rank == 0 else None


@pytest.mark.slow  # four runs
def test_over_servers_it_does_too(workers):
    whole, parts = workers(2, over_servers)[0]
    assert [one.run_outcome for one in parts] == ["stopped", "stopped", "finished"]
    assert [row.lr for one in parts for row in one.rows] == [row.lr for row in whole.rows]
    assert all(torch.equal(parts[-1].parameters[name], one) for name, one in whole.parameters.items())
