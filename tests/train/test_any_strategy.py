"""Any strategy out of the product of all settings is refused by `volary check` in a sentence, or trains to the end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import pytest

from train._served import served
from train._training import Quick, session, trained
from volary.comm.routes import ROOM as ROUTES
from volary.comm.topology.topology import Topology
from volary.errors import BadInput
from volary.exchange.gradients import row_blocks
from volary.session import Choice, Session
from volary.session.reading.fields import settings_of
from volary.session.reading.words import is_union
from volary.train import check_session

WORKERS, STEPS = 2, 6
HERE = Topology.of(range(WORKERS))
AXES = ("consistency", "exchange", "codec", "partition")
ROOMS = {axis: Choice(f"volary.{axis}").open() for axis in AXES}
LAYERS = ("into*", "large*", "back.weight", "*.bias", "out.?eight", "*")
WORDS: Mapping[str, Sequence[Any]] = {
    # which need several nodes no check can know; that they are refused is tested with the routes
    "route": ["auto", "shared", *(name for name in ROUTES.names() if not ROUTES.load(name)().refusal(HERE))],
    "topology": [None],
    "outer": [None, {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}],
    "servers": [1],  # those beside workers are processes of their own: tests/train/test_served.py
    "allow": [(), ("onebit",), ("int8", "topk"), ("none",), ("factors",)],
}


def any_value(draw: random.Random, name: str, hint: Any) -> Any:
    if name in WORDS:
        return draw.choice(WORDS[name])
    if is_union(hint):
        return any_value(draw, name, draw.choice(get_args(hint)))
    if get_origin(hint) is Literal:
        return draw.choice(get_args(hint))
    numbers: dict[Any, Sequence[Any]] = {
        bool: (False, True),
        int: (0, 1, 1, 2, 2, 3),
        float: (0.01, 0.25, 0.5, 0.9, 2.0),
    }
    return None if hint is NoneType else draw.choice(numbers[hint])


def any_plugin(draw: random.Random, axis: str) -> Any:
    room = ROOMS[axis]
    name = draw.choice(room.names())
    known = settings_of(room.load(name)).items()
    return {"name": name, **{key: any_value(draw, key, hint) for key, hint in known if draw.random() < 0.4}}


def any_codec(draw: random.Random) -> Any:
    if draw.random() < 0.7:
        return any_plugin(draw, "codec")
    return {pattern: any_plugin(draw, "codec") for pattern in draw.sample(LAYERS, draw.randint(1, 3))}


def any_session(seed: int) -> dict[str, Any]:
    """Settings, as somebody might write them."""
    draw = random.Random(seed)
    strategy = {
        "workers": WORKERS,
        "consistency": any_plugin(draw, "consistency"),
        "exchange": any_plugin(draw, "exchange"),
        "codec": any_codec(draw),
        "partition": "data",
        "bucket_mb": draw.choice([5e-3, 8.0]),
        **draw.choice([{}, {}, {}, {}, {}, {"backend": "gloo"}]),
    }
    train = {
        "steps": STEPS,
        **draw.choice([{}, {}, {"clip_norm": 1.0}, {"clip_value": 1.0}, {"precision": "bf16"}, {"precision": "fp16"}]),
        **draw.choice([{}, {}, {"accumulate": 2}, {"on_nonfinite": "skip"}]),
    }
    return {
        "of": {"bits": 32},
        "source": {"name": "points", "samples": 44},
        "optimizer": {"name": draw.choice(["sgd", "adam", "adagrad"]), "lr": 0.01},
        "batch": draw.choice(["fixed", "fixed", "fixed", "auto"]),
        "train": train,
        "strategy": strategy,
    }


def any_in_shares(seed: int) -> dict[str, Any]:
    """The same of a strategy whose workers keep shares."""
    found, draw = any_session(seed), random.Random(seed)
    shares = {
        "consistency": "bsp",
        "exchange": {"name": "allreduce", "route": draw.choice(["auto", "auto", "ring", "shared", "linear"])},
        "partition": {"name": "sharded", "level": draw.choice([1, 2])},
    }
    return found | {"strategy": found["strategy"] | shares}


@dataclass
class Judged:
    """refused: by seed, why. accepted: by seed."""

    refused: dict[int, str]
    accepted: dict[int, Session]


def judged(seeds: Iterable[int], settings: Callable[[int], dict[str, Any]] = any_session) -> Judged:
    """As `volary check` does."""
    found = Judged({}, {})
    for seed in seeds:
        try:
            one = session("Wide", **settings(seed))
            check_session(one)
            found.accepted[seed] = one
        except BadInput as error:
            found.refused[seed] = str(error)
    return found


def train_all(rank: int, world_size: int, sessions: Mapping[int, Session]) -> dict[int, tuple[str, list[float]]]:
    """By seed: how it ended, and losses; nothing of a server's process."""
    row_blocks.LARGE_BYTES = 2**13  # of this process: the two large layers may travel as factors
    found = {}
    for seed, one in sessions.items():
        try:
            if one.strategy.servers:
                kept = served(rank, world_size, one, f"seed-{seed}")
            else:
                kept = trained(rank, world_size, one, f"seed-{seed}", disk=Quick())
        except Exception as error:
            error.add_note(f"seed {seed}: {one.strategy}, {one.train}")
            raise
        if kept is not None:
            found[seed] = str(kept.outcome), list(kept.losses)
    return found


def all_train(workers: Any, accepted: Mapping[int, Session]) -> None:
    for served_too in (False, True):
        some = {seed: one for seed, one in accepted.items() if bool(one.strategy.servers) is served_too}
        if some:
            first, *_ = workers(WORKERS + served_too, train_all, some)
            assert first.keys() == some.keys()
            for seed, (outcome, losses) in first.items():
                assert outcome == "finished", seed
                assert losses and all(map(math.isfinite, losses)), seed


def assert_in_sentences(refused: Mapping[int, str]) -> None:
    for seed, said in refused.items():
        for line in said.splitlines():
            assert ": " in line and 4 < len(line.split()) < 80, (seed, line)
            assert any(word in line for word in ("accepted", "nearest", "Known", "planned", "write")), (seed, line)


def test_a_few_strategies_are_refused_in_a_sentence_or_train_to_the_end(workers):
    found = judged(range(80))
    assert_in_sentences(found.refused)
    assert min(len(found.refused), len(found.accepted)) > 5, "neither half is empty"
    summed = [one for one in found.accepted.items() if not one[1].strategy.servers]
    all_train(workers, dict(summed[:4]))  # over servers some train in test_served.py


def test_a_few_whose_workers_keep_shares_are_refused_in_a_sentence_or_train_to_the_end(workers):
    found = judged(range(16), any_in_shares)
    assert_in_sentences(found.refused)
    assert min(len(found.refused), len(found.accepted)) > 2, "neither half is empty"
    all_train(workers, dict([*found.accepted.items()][:5]))


@pytest.mark.slow  # trains more than a hundred
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("first", range(100, 500, 50))
def test_hundreds_of_strategies_are_refused_in_a_sentence_or_train_to_the_end(workers, first):
    found = judged(range(first, first + 50))
    assert_in_sentences(found.refused)
    all_train(workers, found.accepted)
