"""L-BFGS over servers on real processes: the iterates of torch's on one, whoever computed which portion of a batch."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from train._served import Kept, served
from train._training import session
from volary.errors import RunError, SettingError
from volary.server.batch_methods.lbfgs import PREVIOUS
from volary.session import Session
from volary.session.fitting.own_loop import of_own_loop
from volary.sharding.ranges import Range
from volary.train.model import build_model
from volary.train.served.server.vector_rule import VectorRule
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.part_state import PartState
from volary.train.state.seeds import seed_all
from volary.train.update.rules.one_iteration import OneIteration

STEPS = 12
PORTIONS = {"name": "portions", "count": 5}


def over(
    workers: int, servers: int, consistency: Any = "portions", line_search: str = "none", **settings: Any
) -> Session:
    """A session of 41 points whose whole training part is the batch."""
    strategy = {"workers": workers, "consistency": consistency, "bucket_mb": 4e-4} | settings.pop("strategy", {})
    optimizer = {"name": "lbfgs", "lr": 0.5, "history_size": 5, "line_search": line_search}
    return session(
        settings.pop("network", "Exact"),
        optimizer=optimizer | settings.pop("optimizer", {}),
        batch_size=settings.pop("batch_size", 41),
        train={"steps": STEPS} | settings.pop("train", {}),
        strategy={"exchange": {"name": "server", "servers": servers}} | strategy,
        **settings,
    )


@cache
def of_torch(line_search: str, steps: int = STEPS) -> tuple[dict[str, Tensor], list[float]]:
    """Parameters after so many evaluations of torch's L-BFGS, each of which is one step of ours, and all losses."""
    of = over(1, 1)
    seed_all(of.train.seed)
    model = build_model(of, torch.device("cpu"))
    inputs, targets = model.samples.fetch(torch.arange(41))
    named, flow = dict(model.module.named_parameters()), model.flow("train")
    losses, values = list[float](), list[dict[str, Tensor]]()
    optimizer = torch.optim.LBFGS(
        list(named.values()), lr=0.5, max_iter=10**6, max_eval=steps + 1, history_size=5, tolerance_change=-1.0,
        line_search_fn=None if line_search == "none" else line_search,
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = flow(inputs, targets)
        loss.backward()
        losses.append(loss.item())
        values.append({name: one.detach().clone() for name, one in named.items()})
        return loss

    optimizer.step(closure)
    return values[steps], losses[:steps]


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-7, atol=1e-8, msg=lambda text, n=name: f"{n}: {text}")


def learn(rank: int, world_size: int, workers: int, line_searches: list[str], models: list[Any]) -> list[Kept | None]:
    servers = world_size - workers
    return [
        served(rank, world_size, over(workers, servers, model, line_search), f"it-{number}-{line_search}")
        for number, model in enumerate(models)
        for line_search in line_searches
    ]


@pytest.mark.parametrize(
    ("count", "servers", "searches"),
    [
        (2, 1, ["strong_wolfe"]),
        *(
            pytest.param(w, s, ["none", "strong_wolfe"], marks=pytest.mark.slow)
            for w in (1, 2, 3, 4)
            for s in (1, 2, 3)
        ),
    ],
)
def test_workers_over_servers_have_the_iterates_of_one_process(workers, count, servers, searches):
    found = workers(count + servers, learn, count, searches, [PORTIONS, "bsp"])[0]
    assert len(found) == 2 * len(searches)
    for number, kept in enumerate(found):
        expected, losses = of_torch(searches[number % len(searches)])
        assert kept.outcome == kept.run_outcome == "finished"
        assert_equal(kept.parameters, expected)
        assert losses[-1] < 0.5 * losses[0]


def resumed(rank: int, world_size: int) -> tuple[Kept | None, Kept | None, Kept | None]:
    """A run in one piece; one that stops in the midst of its line searches, and goes on over as many servers."""
    how = {"checkpoint": {"every": "3 steps", "keep_last": 9}}
    whole = served(rank, world_size, over(1, 2, PORTIONS, "strong_wolfe", **how), "whole")
    part = served(rank, world_size, over(1, 2, PORTIONS, "strong_wolfe", train={"steps": 7}, **how), "parts")
    rest = served(rank, world_size, over(1, 2, PORTIONS, "strong_wolfe", **how), "parts")
    return whole, part, rest


def test_a_run_that_is_resumed_has_the_same_bits(workers):
    whole, part, rest = workers(3, resumed)[0]
    assert part.steps[-1] == 7 < rest.steps[-1] == STEPS
    for name, values in whole.parameters.items():
        assert torch.equal(values, rest.parameters[name]), name
        assert name.startswith("unused") or not torch.equal(values, part.parameters[name]), name


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"consistency": "async"}, "consistency=async an update is of less, or of other parameters; accepted: bsp or"),
        ({"consistency": {"name": "backup", "k": 1}}, "consistency=backup an update is of less"),
        ({"consistency": {"name": "ssp", "staleness": 2}}, "consistency=ssp"),
        ({"consistency": "local"}, "consistency=local"),
        ({"consistency": "elastic"}, "consistency=elastic"),
        ({"consistency": "bsp", "strategy": {"codec": "int8"}}, "codec int8 leaves out some of them; accepted: none"),
        ({"strategy": {"codec": "int8"}}, "consistency.copies of two answers one counts.*; accepted: copies=false"),
        ({"strategy": {"exchange": {"name": "server", "pulls": "fp16"}}}, "exchange.pulls=fp16 lets workers compute"),
        ({"train": {"clip_norm": 1.0}}, "train.clip_norm=1 would let it compare others; accepted: no clip_norm"),
        ({"train": {"clip_value": 1.0}}, "train.clip_value=1 "),
        ({"train": {"clip_adaptive": 0.1}}, "train.clip_adaptive=0.1 "),
        ({"train": {"on_nonfinite": "skip"}}, "train.on_nonfinite=skip leaves out some of one; accepted: stop"),
        ({"train": {"freeze": [{"match": "layers.0*", "until": "2 steps"}]}}, "train.freeze.until lets layers join"),
        ({"train": {"mix": ["mixup"]}}, "mixed samples make another one each time; accepted: none"),
        (
            {"line_search": "strong_wolfe", "strategy": {"exchange": "allreduce", "consistency": "bsp"}},
            "with exchange=allreduce a step has one loss; accepted: none, or exchange=server",
        ),
        (
            {"line_search": "strong_wolfe", "chosen": {"sampling": {"by": "class"}}},
            "data.sampling.by=class draws others each epoch; accepted: order, or line_search=none",
        ),
    ],
    ids=str,
)
def test_settings_that_leave_another_gradient_than_the_whole_batch_s_are_refused(settings, sentence):
    with pytest.raises(SettingError, match=sentence):
        over(2, 1, **settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"network": "Dropping"},
            r"layer [\w.]+ \(Dropout\) draws what it drops anew each time; accepted: a rate of 0",
        ),
        ({"network": "Normed64"}, "batch norms normalise each portion of it by itself; accepted: a network without"),
        (
            {"line_search": "strong_wolfe", "batch_size": 40},
            "data.batch_size=40 is less than the 41 samples of the training part; accepted: batch_size=41 or more",
        ),
    ],
    ids=str,
)
def test_a_loss_that_is_no_function_of_the_parameters_is_refused(settings, sentence):
    of = over(2, 1, **settings)
    with pytest.raises(SettingError, match=sentence):
        build_model(of, torch.device("cpu"))


def test_a_batch_that_is_less_than_the_training_part_is_accepted_without_a_line_search():
    build_model(over(2, 1, batch_size=10), torch.device("cpu"))


def test_a_loop_of_one_s_own_is_refused_portions_as_it_says_what_each_worker_computes():
    strategy = over(2, 1).strategy
    with pytest.raises(SettingError, match="consistency is portions, and the loop of your own says what each worker"):
        list(of_own_loop(strategy, early_update=False))


def test_what_servers_remember_and_what_one_process_does_are_not_taken_for_each_other():
    alone = OneIteration([torch.ones(2)])
    with pytest.raises(RunError, match="what servers remember for optimizer lbfgs; accepted: exchange=server"):
        alone.load_state_dict({"state": {0: {PREVIOUS: torch.ones(2)}}, "param_groups": []})
    rule, part = VectorRule({0: [Range("x", 0, 2)]}, lambda _: 0.1, None), Range("x", 0, 2)
    with pytest.raises(RunError, match=r"has 'func_evals' of x, .*; accepted: exchange=allreduce, as before, or a new"):
        rule.restore(0, OptimizerState([PartState(part, {}, {"func_evals": 3})]))


def test_weights_may_lie_in_memory_as_they_like():
    straight = torch.nn.Parameter(torch.arange(12.0).view(3, 4))
    turned = torch.nn.Parameter(straight.detach().t().contiguous().t())
    for one in (straight, turned):
        optimizer = OneIteration([one], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            (one - 1).square().sum().backward()
            gradient = one.grad
            optimizer.step()
            assert one.grad is gradient
    assert turned.stride() == (1, 3)
    torch.testing.assert_close(turned, straight, rtol=0, atol=1e-5)
