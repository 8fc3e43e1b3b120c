"""Seconds until a small transformer is as good as wanted on slow links, ours and what a PyTorch user would take.

A GPT of 1.8 million parameters (7 MB) learns tiny-shakespeare on 4 hosts at 100 Mbit/s in the lab, 4 sequences of 64
characters a worker and step, AdamW. All begin with the same values, and get the same batches. The loss is that of the
last hundredth of the text, measured every 16 steps, at a worker's own parameters where copies differ. Seconds count
from the first step on, with evaluations; between the first that is as good as wanted and the one before it, the time is
taken in proportion. A peer ends when it is as good; ours trains for as many steps as a peer may take.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from math import inf
from typing import Any

import _in_lab
import _shakespeare
from _local_models import BEHIND, DILOCO, PERIOD, STREAMING
from _report import Options, Row
from volary.run.database.reader import RunReader
from volary.session.spec import Session

WORKERS, RATE, SHARE = 4, "100mbit", 4
LR = 1e-3
NETWORK = {"name": "gpt", "layers": 4, "heads": 4, "width": 192, "dropout": 0.0}
FOUND = "losses.json"  # among a peer's results

OURS: dict[str, Mapping[str, Any]] = {
    "local": {"consistency": {"name": "local", "period": PERIOD // 2}, "codec": "int8"},
    "diloco": {"consistency": DILOCO, "codec": "int8"},
    "streaming": {
        "consistency": STREAMING | {"fragments": 4},
        "codec": "int8",
        "exchange": BEHIND,
    },
    "sparseloco": {
        "consistency": {"name": "local", "period": PERIOD, "outer": {"name": "sgd", "lr": 1.0}},
        "codec": {"name": "topk", "ratio": 0.03, "bits": 2, "decay": 0.95},
    },
}
HOOKS = ("DDP", "DDP, fp16 hook", "DDP, PowerSGD hook")
LOCALS = ("torch post-local SGD", "torchft DiLoCo", "torchft Streaming DiLoCo")
MODULES = {"torchft": "torchft"}  # that a peer needs, by the first word of its name


@dataclass(frozen=True)
class Effort:
    """wanted: the loss, in nats a character. steps: that a side may take. seeds: of trainings. ours, theirs: sides."""

    wanted: float
    steps: int
    seeds: Sequence[int]
    ours: Sequence[str]
    theirs: Sequence[str]


QUICK = Effort(2.7, 10 * PERIOD, (1,), ("local", "streaming"), (*HOOKS[1:], *LOCALS))
FULL = Effort(2.4, 24 * PERIOD, (1, 2, 3), tuple(OURS), (*HOOKS, *LOCALS))

Losses = list[tuple[float, int, float]]  # seconds, steps done, loss


def seconds_to(losses: Losses, wanted: float) -> float:
    """Until the loss was as low as wanted for the first time; infinite if it never was."""
    before_s, before = 0.0, inf
    for seconds, _, loss in losses:
        if loss <= wanted:
            part = 1.0 if before == inf else (before - wanted) / (before - loss)
            return before_s + part * (seconds - before_s)
        before_s, before = seconds, loss
    return inf


def _row(name: str, peers: Sequence[str], wanted: str, options: Options) -> Row:
    _shakespeare.require()
    effort = QUICK if options.quick else FULL
    ours = {one: _times(one, quick=options.quick) for one in effort.ours}
    theirs = {one: _times(one, quick=options.quick) for one in effort.theirs if one in peers and _is_here(one)}
    best, peer = _soonest(ours), _soonest(theirs)
    ratios = [other / one if one < inf else 0.0 for one, other in zip(ours[best], theirs[peer], strict=True)]
    print(
        f"{name}: loss {effort.wanted:g} after: " + "; ".join(f"{one} {_said(s)}" for one, s in (ours | theirs).items())
    )
    return Row(
        name=name,
        value=statistics.median(ours[best]),
        unit=f"s to a loss of {effort.wanted:g} ({best})",
        peer=peer,
        peer_value=statistics.median(theirs[peer]),
        ratio=statistics.median(ratios),
        wanted=wanted,
        better="higher",
    )


def _soonest(found: Mapping[str, Sequence[float]]) -> str:
    return min(found, key=lambda one: statistics.median(found[one]))


def _said(seconds: Sequence[float]) -> str:
    return " ".join("never" if one == inf else f"{one:.1f} s" for one in seconds)


def _is_here(side: str) -> bool:
    """Whether what the peer needs is installed; says so if not."""
    needed = MODULES.get(side.split()[0])
    if needed is None or find_spec(needed) is not None:
        return True
    print(f"{side}: left out: {needed} is not installed")
    return False


@cache
def _times(side: str, *, quick: bool) -> list[float]:
    """Seconds of a side until it was as good as wanted, seed by seed. Raises LabError."""
    effort = QUICK if quick else FULL
    found = []
    for seed in effort.seeds:
        with tempfile.TemporaryDirectory() as folder:
            session = _session(OURS.get(side, {}), seed, effort.steps, folder)
            losses = _ours(session) if side in OURS else _theirs(session, side, effort.wanted)
        found.append(seconds_to(losses, effort.wanted))
        curve = ", ".join(f"{steps} {loss:.3f}" for _, steps, loss in losses)
        seconds, steps, _ = losses[-1]
        print(f"  {side}, seed {seed}: {_said(found[-1:])}; {seconds / steps:.3f} s a step; {curve}", flush=True)
    return found


def _ours(session: Session) -> Losses:
    with RunReader(_in_lab.run(session, RATE)) as reader:
        began = min(row.ended_at - row.step_s for row in reader.steps())
        return [(one.at - began, one.step or 0, one.data["loss"]) for one in reader.events(kind="evaluated")]


def _theirs(session: Session, side: str, wanted: float) -> Losses:
    directory = _in_lab.run(session, RATE, "_loss_peer.py", json.dumps({"side": side, "wanted": wanted}))
    return [(at, steps, loss) for at, steps, loss in json.loads((directory.results / FOUND).read_text("utf-8"))]


def _session(strategy: Mapping[str, Any], seed: int, steps: int, folder: str) -> Session:
    settings: dict[str, Any] = {
        "network": NETWORK,
        "data": {"source": _shakespeare.SOURCE, "batch_size": WORKERS * SHARE},
        "optimizer": {"name": "adamw", "lr": LR},
        "train": {"steps": steps, "seed": seed, "device": "cpu", "compare_replicas": "never"},
        "evaluate": {"every": f"{PERIOD} steps"},
        "checkpoint": {"every": "never", "keep_best": False},
        # a peer's steps must not look like a hang
        "strategy": {"workers": WORKERS, "suspect_after_s": 300, "give_up_after_s": 600, **strategy},
        "run": {"folder": folder},
    }
    return Session(**settings)


ROWS: dict[str, Callable[[Options], Row]] = {
    "loss-100m": partial(_row, "loss-100m", HOOKS, "at least 5"),
    "loss-100m-local": partial(_row, "loss-100m-local", LOCALS, "at least 1.5"),
}
