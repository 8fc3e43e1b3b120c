"""Values that frames carried of a step that is left out, or of a parameter that nobody used, are not lost.

The loss's gradient is the same whatever the parameters are, so that the sum of what was contributed is known: it is
what was applied and the residuals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import Any

import pytest
import torch
from torch import Tensor

from _once import made_once
from _workers import Workers
from train._served import served
from train._training import OVERLAPPED, Quick, made, started
from train.test_served import over
from train.test_updates_by_positions import (
    BATCH,
    LR,
    MODELS,
    STEPS,
    TOGETHER,
    begun_with,
    closed_updates,
    gradients,
    uneven,
)
from volary.codec import ROOM
from volary.run.checkpoints import Checkpoints
from volary.session import Session
from volary.train.loop import train
from volary.train.served.roster_client import RosterClient
from volary.train.state.rank_state import RESIDUALS, rank_states

SPOILT = 5  # of the second batch of an epoch, in the share of rank 1
COUNTED = 2  # samples of each batch in which something does: ten positions of four times five
CODECS = [name for name in ROOM.names() if ROOM.load(name)().feedback]
STRATEGIES: dict[str, dict[str, Any]] = {
    "as sums arrive": {"strategy": OVERLAPPED},
    "after backward": {"strategy": OVERLAPPED, "train": {"clip_norm": 1e9}},
    "behind": {"strategy": {"exchange": {"name": "allreduce", "behind": True}}},
    "local": {"strategy": {"consistency": {"name": "local", "period": 1}}},
    "sharded": {"strategy": {**OVERLAPPED, "partition": {"name": "sharded", "level": 2}}},
}
POLICIES: dict[str, dict[str, Any]] = {"nothing counts": {}, "skip": {"on_nonfinite": "skip"}}


def lossless(codec: str) -> dict[str, Any]:
    """The codec with a residual of which nothing is lost."""
    return {"name": codec, **({"decay": 1.0} if codec == "dct" else {})}


def leaving_out(strategy: str, codec: str, policy: str) -> Session:
    settings = STRATEGIES[strategy]
    return uneven(
        32,
        {"spoilt": [SPOILT] if POLICIES[policy] else []},
        strategy={**settings["strategy"], "codec": lossless(codec)},
        train={**settings.get("train", {}), **POLICIES[policy]},
    )


def contributed(one: Session, *, spoilt: bool) -> dict[str, Tensor]:
    """The sum of the means of all batches, but of those that are left out."""
    batches = [list(range(first, first + BATCH)) for first in range(0, 24, BATCH)]
    kept = [numbers for numbers in batches if not (spoilt and SPOILT in numbers)]
    means = gradients(one, kept)
    return {name: sum(mean[name] for mean in means) * (STEPS // len(batches)) for name in means[0]}


def left(rank: int, world_size: int) -> dict[tuple[str, str, str], Any]:
    """By strategy, codec and policy, the parameters at the end, and this rank's residuals."""
    found = {}
    for what in ((strategy, codec, policy) for strategy in STRATEGIES for codec in CODECS for policy in POLICIES):
        it = made(rank, world_size, leaving_out(*what), "-".join(what), disk=Quick())
        with started(it):
            train(it)
            parameters = {name: one.detach().clone() for name, one in it.flow.module.named_parameters()}
            found[what] = parameters, dict(it.coordinator.residuals.rank_state())
    return found


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Sequence[dict[tuple[str, str, str], Any]]:
    """Each rank's result."""
    return made_once(tmp_path_factory, "left-out", lambda: Workers(tmp_path_factory.mktemp("workers"))(2, left))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_was_applied_and_the_residuals_are_what_was_contributed(
    ended, tmp_path, monkeypatch, strategy, codec, policy
):
    monkeypatch.chdir(tmp_path)
    one = leaving_out(strategy, codec, policy)
    begun, expected = begun_with(one), contributed(one, spoilt=policy == "skip")
    unit = BATCH / COUNTED * (-LR if strategy != "local" else 1.0)  # of residuals, in parameters
    ways = [rank[strategy, codec, policy] for rank in ended]
    for name, values in ways[0][0].items():
        waits = unit * waiting([kinds for _, kinds in ways], name, values)
        torch.testing.assert_close(values + waits, begun[name] - LR * expected[name], rtol=0, atol=2e-5, msg=name)


def waiting(ranks: Sequence[dict[str, Any]], name: str, values: Tensor) -> Tensor:
    """The sum of all ranks' residuals of a parameter, in its shape."""
    found = [kinds[name]["residual"] for kinds in ranks if "residual" in kinds.get(name, {})]
    assert found or "bias" in name, "few values travel as they are"
    return sum(found, torch.zeros(values.numel())).view_as(values)


# Over servers

WORKERS, IN_VAIN = 2, 3  # contributions that the second worker pushes in vain, with backup
SERVED = {**MODELS, "local": {"name": "local", "period": 1}}


def over_servers(codec: str, model: str) -> Session:
    """Twice as much counts in a batch as in a worker's part of it, and as much in each."""
    return over(uneven(32, {"evenly": True}), WORKERS, 1, SERVED[model], codec=lossless(codec))


@contextmanager
def in_vain(rank: int) -> Iterator[list[int]]:
    """The second worker says of its first contributions that they are held once others went on without them."""
    changed, found = Condition(), list[int]()
    hear, done = RosterClient._hear, RosterClient.done

    def heard(work: RosterClient, said: Any) -> None:
        hear(work, said)
        with changed:
            changed.notify_all()

    def late(work: RosterClient, clock: int, waited_s: float = 0.0) -> None:
        with changed:
            if len(found) < IN_VAIN and changed.wait_for(lambda: work.is_dropped(clock), 10):
                found.append(clock)
        done(work, clock, waited_s)

    if rank == 1:
        RosterClient._hear, RosterClient.done = heard, late  # type: ignore[method-assign]
    try:
        yield found
    finally:
        RosterClient._hear, RosterClient.done = hear, done  # type: ignore[method-assign]


def left_to_servers(rank: int, world_size: int) -> dict[tuple[str, str], Any]:
    """By codec and model, of rank 0 what servers kept and the residuals of all, and of each update its samples.

    Of rank 1 how many contributions were pushed in vain.
    """
    found: dict[tuple[str, str], Any] = {}
    for what in ((codec, model) for codec in CODECS for model in SERVED):
        with closed_updates() as updates, in_vain(rank if what[1] == "backup" else 0) as vain:
            kept = served(rank, world_size, over_servers(*what), "-".join(what))
        found[what] = len(vain)
        if rank == 0:
            assert kept is not None
            saved = Checkpoints(Path("runs", "-".join(what), "checkpoints"))
            step = kept.steps[-1]
            states = [rank_states(saved.path(step), saved.verify(step), worker, WORKERS) for worker in range(WORKERS)]
            found[what] = kept.parameters, [one[RESIDUALS] for own in states for one in own], updates
    return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Sequence[dict[tuple[str, str], Any]]:
    """Each rank's result."""
    return made_once(
        tmp_path_factory,
        "left-out-over-servers",
        lambda: Workers(tmp_path_factory.mktemp("workers"))(WORKERS + 1, left_to_servers),
    )


@pytest.mark.slow  # thirty runs; test_updates_by_positions.py has the models
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("model", SERVED)
def test_so_it_is_over_servers(kept, tmp_path, monkeypatch, codec, model):
    monkeypatch.chdir(tmp_path)
    parameters, residuals, updates = kept[0][codec, model]
    assert model != "backup" or kept[1][codec, model] == IN_VAIN
    one = over_servers(codec, model)
    begun, updates = begun_with(one), [samples for samples in updates if samples]
    means = gradients(one, updates)
    shares = [1.0 if model in (*TOGETHER, "local") else len(samples) / BATCH for samples in updates]
    unit = {"local": 1.0, "backup": -LR * WORKERS}.get(model, -LR)
    for name, values in parameters.items():
        waits = unit * waiting(residuals, name, values)
        learnt = sum(share * mean[name] for share, mean in zip(shares, means, strict=True))
        torch.testing.assert_close(values + waits, begun[name] - LR * learnt, rtol=0, atol=2e-5, msg=name)
