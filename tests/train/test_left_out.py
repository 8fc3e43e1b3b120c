"""What frames carried of a step that is left out, or of a parameter that nobody used, is not lost.

The loss's gradient is the same whatever the parameters are, so that the sum of what was contributed is known: it is
what was applied and the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from _workers import Workers
from train._training import OVERLAPPED, Quick, made, started
from train.test_updates_by_positions import BATCH, LR, STEPS, begun_with, gradients, uneven
from volary.codec import ROOM
from volary.session import Session
from volary.train.loop import train

SPOILT = 5  # of the second batch of an epoch, in the share of rank 1
COUNTED = 2  # samples of each batch in which something does: ten positions of four times five
CODECS = [name for name in ROOM.names() if ROOM.load(name)().feedback]
STRATEGIES: dict[str, dict[str, Any]] = {
    "as sums arrive": {"strategy": OVERLAPPED},
    "after backward": {"strategy": OVERLAPPED, "train": {"clip_norm": 1e9}},
    "behind": {"strategy": {"exchange": {"name": "allreduce", "behind": True}}},
    "local": {"strategy": {"consistency": {"name": "local", "period": 1}}},
}
POLICIES: dict[str, dict[str, Any]] = {"nothing counts": {}, "skip": {"on_nonfinite": "skip"}}


def leaving_out(strategy: str, codec: str, policy: str) -> Session:
    settings = STRATEGIES[strategy]
    return uneven(
        32,
        [SPOILT] if POLICIES[policy] else [],
        strategy={**settings["strategy"], "codec": codec},
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
    """What each rank found."""
    return Workers(tmp_path_factory.mktemp("workers"))(2, left)


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
        residual = sum(kinds.get(name, {}).get("residual", torch.zeros(values.numel())) for _, kinds in ways)
        assert policy == "skip" or "bias" in name or residual.any(), name
        waits = unit * torch.as_tensor(residual).view_as(values)
        torch.testing.assert_close(values + waits, begun[name] - LR * expected[name], rtol=0, atol=2e-5, msg=name)
