"""Workers that hold parts of layers train what one device trains."""

from __future__ import annotations

import pytest

from partition._cut import assert_same, blocks, sessions, train_all
from train._training import Trained

TENSOR = {"partition": "tensor"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_all(0, 1, {})


@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_parts_of_layers_equal_one_device(workers, alone, world_size):
    for rank, found in enumerate(workers(world_size, train_all, TENSOR)):
        for name, one in sessions(TENSOR).items():
            own = blocks(one, rank, world_size)
            assert own, "something is cut"
            assert_same(found[name], alone[name], own, f"{name}, rank {rank} of {world_size}:")
