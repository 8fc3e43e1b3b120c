"""Loops of one's own whose workers keep shares: as on one worker, saved and resumed by any number of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from train.test_early_update import clipped, groups_and_passes, loaded, momentum
from train.test_own_loop import ROUNDING, call
from volary.errors import SettingError
from volary.session.script import Script

LOOPS = {loop.__name__: loop for loop in (momentum, groups_and_passes, clipped, loaded)}
SHARED = {"partition": {"name": "sharded", "level": 2}}
MESH = {"partition": {"name": "mesh", "axes": {"data": 2, "sharded": {"workers": 2, "level": 2}}}}


def looped(rank: int, world_size: int, strategy: dict[str, Any]) -> dict[str, Any]:
    """The parameters and the optimiser's state that each loop ends with."""
    early = world_size > 1
    return {
        name: call(lambda worker, loop=loop: loop(worker, early), rank, world_size, attempt_id, strategy=strategy,
                   early_update=early)[0]
        for attempt_id, (name, loop) in enumerate(LOOPS.items())
    }  # fmt: skip


@pytest.mark.parametrize(
    ("world_size", "strategy"),
    [(2, SHARED), pytest.param(3, SHARED, marks=pytest.mark.slow), pytest.param(4, MESH, marks=pytest.mark.slow)],
)
def test_loops_that_look_at_no_gradients_equal_one_worker_with_whole_states_for_their_code(
    workers, world_size, strategy
):
    alone = looped(0, 1, {})
    for found in workers(world_size, looped, strategy):
        for name, expected in alone.items():
            assert found[name].keys() == expected.keys()
            for entry, tensor in expected.items():
                torch.testing.assert_close(
                    found[name][entry],
                    tensor,
                    rtol=0,
                    atol=ROUNDING,
                    msg=lambda text, where=(name, entry): f"{where}: {text}",
                )


def test_a_loop_that_looks_at_gradients_is_told_what_is_accepted():
    with pytest.raises(SettingError, match=r"its share of the gradients alone; accepted: early_update=true"):
        Script(program="mine.py", strategy={"workers": 2, **SHARED})
    assert Script(program="mine.py", strategy={"workers": 2, **SHARED}, early_update=True).early_update


def test_a_loop_may_look_at_all_parameters_which_level_3_has_only_to_compute():
    with pytest.raises(SettingError, match=r"only to compute with it; accepted: partition.level=2 with early_update"):
        Script(
            program="mine.py",
            strategy={"workers": 2, "partition": {"name": "sharded", "level": 3}},
            early_update=True,
        )
