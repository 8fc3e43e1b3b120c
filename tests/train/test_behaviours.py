"""Uses of a model by people, and by the tests of DistributedDataParallel: as on one worker, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from train import _behaviours
from train.test_own_loop import ROUNDING, call


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(state, torch.Tensor):
        yield name, state
        return
    for key, part in state.items():
        yield from leaves(part, f"{name}.{key}")


def each(rank: int, world_size: int, names: list[str], strategy: dict[str, Any]) -> dict[str, Any]:
    return {
        name: call(_behaviours.LOOPS[name], rank, world_size, attempt, strategy=strategy)[0]
        for attempt, name in enumerate(names)
    }


def compare(workers: Callable[..., Any], names: list[str], strategy: dict[str, Any], world_size: int = 2) -> None:
    (alone,) = workers(1, each, names, {})
    for rank, found in enumerate(workers(world_size, each, names, strategy)):
        for name in names:
            expected = dict(leaves(alone[name]))
            for where, tensor in leaves(found[name]):
                torch.testing.assert_close(
                    tensor,
                    expected[where],
                    rtol=0,
                    atol=1e-8 if name == "closures" else 10 * ROUNDING,  # which multiplies it
                    msg=lambda text, where=f"{name}{where} on rank {rank}": f"{where}: {text}",
                )


NAMES = [loop.__name__ for loop in _behaviours.EQUAL]


def test_what_people_do_with_a_model_comes_to_the_same_on_two_workers(workers):
    compare(workers, NAMES, {})


@pytest.mark.slow  # torch's compiler takes its time
def test_a_model_may_be_compiled_before_and_after_and_so_may_a_function_of_its_parts(workers):
    compare(workers, ["compiled_before_and_after", "compiled_function"], {})


@pytest.mark.slow  # the same over another route, and on three
def test_what_people_do_with_a_model_comes_to_the_same_over_any_route(workers):
    compare(workers, NAMES, {"exchange": {"name": "allreduce", "route": "ring"}}, 3)


def refusing(rank: int, world_size: int, name: str) -> str:
    try:
        call(_behaviours.LOOPS[name], rank, world_size, 0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


@pytest.mark.parametrize("loop", _behaviours.REFUSED, ids=lambda loop: loop.__name__)
def test_what_workers_cannot_agree_on_is_refused_in_one_sentence_at_that_step(workers, loop):
    assert workers(2, refusing, loop.__name__) == [_behaviours.REFUSED[loop]] * 2
