"""Each feature with each way to keep replicas one model, stopped and resumed at each of its boundaries.

A feature is a line of FEATURES, or a file of a room: its settings, and the steps after which it is stopped. Where a
strategy is deterministic, a resumed run equals the whole one bit for bit; elsewhere it goes on with finite numbers.
What cannot be is refused in a sentence, and is in REFUSED.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from train._served import served
from train._training import Quick, session
from train._user_networks import Dropping
from train.test_freezing import staged
from volary.errors import SettingError
from volary.network.metrics import ROOM as METRICS
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.session import Session
from volary.sharding.ranges import Range
from volary.train.averages import ROOM as AVERAGES
from volary.train.averages.none import NoAverage
from volary.train.beginning.first_checkpoint import untrained
from volary.train.beginning.from_weights import begin
from volary.train.mixing import ROOM as MIXINGS
from volary.train.model import build_model
from volary.train.optimizers import ROOM as OPTIMIZERS
from volary.train.schedules import ROOM as SCHEDULES
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.seeds import seed_all

STEPS, EPOCH = 12, 4  # 44 images in batches of 12: the fourth is of 8
EVERY_3 = {"every": "3 steps"}
GPT = {"name": "gpt", "layers": 1, "heads": 2, "width": 8}
LSTM = {"name": "lstm", "layers": 1, "hidden": 8, "embedding": 8}
LABELS = {"name": "labelled_points"}
FILE = "begin.pt"  # the weights of a `Dropping`


@dataclass(frozen=True)
class Feature:
    """settings: of the session. stops: ends of steps to resume after. network: one with dropout and batch norm, but
    for what takes the loss for a function of the parameters; of: its own arguments. symbols: a small GPT on this file's
    text in its place.
    """

    settings: dict[str, Any]
    stops: tuple[int, ...] = (EPOCH, EPOCH + 2)
    network: str = "Dropping"
    of: dict[str, Any] = field(default_factory=dict)
    symbols: bool = False


def train(**settings: Any) -> dict[str, Any]:
    return {"train": {"steps": STEPS, **settings}}


SCHEDULE_SETTINGS: dict[str, dict[str, Any]] = {
    "chain": {"parts": ["constant", "cosine"], "steps": [6]},
    "cyclic": {"up": 3},
    "exponential": {"gamma": 0.9},
    "multistep": {"milestones": [6]},
    "piecewise": {"steps": [0, 6], "factors": [1.0, 0.1]},
    "restarts": {"every": 6},
    "sigmoid": {"middle": 6, "gamma": 0.5},
    "step": {"every": 6},
}
AVERAGE_SETTINGS: dict[str, dict[str, Any]] = {  # they begin with the third step
    "ema": {"decay": 0.8, "start": "2 steps"},
    "swa": {"start": "2 steps", "every": "2 steps"},
}


def plateau(by: str, **settings: Any) -> dict[str, Any]:
    """A rate that falls with each evaluation that is hardly better."""
    rule = {"name": "plateau", "by": by, "gamma": 0.5, "patience": 0, "threshold": 0.3}
    return {"schedule": rule, "evaluate": EVERY_3, **settings}


def decided_by(name: str) -> Feature:
    """The metric decides how the rate goes on."""
    settings = METRIC_SETTINGS.get(name, {})
    metric = METRICS.load(name)(**settings)
    of_values = metric.outputs == "values"
    loss = {"name": "mse" if of_values else "cross_entropy", "metric": metric.name}
    more = {"source": LABELS} if of_values else {}
    found = plateau("metric", loss=loss | {"metrics": [{"name": name, **settings}]}, **more)
    return Feature(found, (3, 6, 7), symbols=metric.outputs == "positions")


METRIC_SETTINGS: dict[str, dict[str, Any]] = {"topk": {"k": 2}}
OF_ROOMS: dict[str, Feature] = {
    **{
        f"schedule {name}": Feature({"schedule": {"name": name, **SCHEDULE_SETTINGS.get(name, {})}}, (6, 7))
        for name in SCHEDULES.names()
        if name != "plateau"
    },
    **{f"optimizer {name}": Feature({"optimizer": {"name": name}}) for name in OPTIMIZERS.names()},
    "optimizer lbfgs": Feature({"optimizer": "lbfgs"}, network="Pictures"),
    **{f"mix {name}": Feature(train(mix=[name])) for name in MIXINGS.names()},
    **{
        f"average {name}": Feature(train(average={"name": name, **AVERAGE_SETTINGS[name]}), (2, 3, 6))
        for name in AVERAGES.names()
        if name != "none"
    },
    **{
        f"decided by {name}": decided_by(name)
        for name in METRICS.names()
        if METRICS.load(name).higher_is_better is not None
    },
}
FEATURES: dict[str, Feature] = {
    **OF_ROOMS,
    "schedule plateau": Feature(plateau("loss"), (6, 7)),
    "average that is evaluated": Feature(
        plateau("loss", **train(average={"name": "ema", "decay": 0.5, "evaluate": True})), (3, 6, 7)
    ),
    "warm-up in epochs, by the workers": Feature(
        {"schedule": {"name": "cosine", "warmup": "2 epochs"}, **train(scale_lr="linear")}, (EPOCH, 8, 9)
    ),
    "weights of a file": Feature({}, of={"weights": FILE}),
    "weights of a file, some anew": Feature(
        train(freeze=[{"match": "layers.0", "until": "6 steps"}]),
        (4, 6, 8),
        of={"weights": {"path": FILE, "fresh": ["layers.4"], "leave_out": ["layers.4.*"]}},
    ),
    "smoothing": Feature({"loss": {"name": "cross_entropy", "label_smoothing": 0.1}}),
    "class weights": Feature({"loss": {"name": "cross_entropy", "class_weights": [1.0, 3.0, 0.5, 1.0]}}),
    "balanced classes": Feature({"loss": {"name": "cross_entropy", "class_weights": "balanced"}}),
    "several losses": Feature(
        {"loss": {"name": "weighted", "parts": [{"loss": "cross_entropy"}, {"loss": "torch.nn:MultiMarginLoss"}]}}
    ),
    "adaptive clipping": Feature(train(clip_adaptive=0.05)),
    "recompute": Feature(train(recompute=["layers"])),
    "channels last": Feature(train(channels_last=True), network="Pictures"),
    "thawed": Feature(train(freeze=[{"match": "layers.0", "until": "6 steps"}]), (4, 6, 8)),
    "thawed, statistics kept": Feature(
        train(freeze=[{"match": "layers.[01]*", "until": "6 steps", "statistics": "keep"}]),
        (4, 6, 8),
    ),
    "accumulated": Feature(train(accumulate=2)),
    "drawn by class": Feature({"chosen": {"sampling": {"by": "class"}}}),
    "drawn by weight": Feature({"source": LABELS, "loss": "mse", "chosen": {"sampling": {"by": "weight"}}}),
    "several labels": Feature({"source": LABELS, "loss": {"name": "torch.nn:BCEWithLogitsLoss"}}),
    "divided": Feature({"chosen": {"split": {"validation": 0.25}}}),
    "a fold": Feature({"chosen": {"folds": 4, "fold": 1}}),
    "parameter groups": Feature(train(parameters=[{"match": "*.bias", "lr": 2.0, "weight_decay": 0.0}])),
    "layer decay": Feature(train(layer_decay=0.5)),
    "no decay of vectors": Feature(
        {"optimizer": "adamw", **train(parameters=[{"match": "vectors", "weight_decay": 0.0}])}
    ),
    "batch norm of all": Feature(train(sync_batch_norm=True)),
    "text": Feature(
        {"evaluate": {"every": "never", "text": {"prompt": "def ", "length": 4, "every": "3 steps"}}},
        (5, 6),
        symbols=True,
    ),
    "states kept between batches": Feature({"network": {**LSTM, "stateful": True}, "shuffle": False}, symbols=True),
    "a stream in shards": Feature({"source": {"name": "InShards"}, "shuffle": False}),
    "packed documents apart": Feature({"network": {**GPT, "documents": True}}, symbols=True),
    "bf16": Feature(train(precision="bf16")),
    "clipped": Feature(train(clip_norm=0.5)),
}

STRATEGIES: dict[str, dict[str, Any]] = {
    "bsp": {"exchange": {"name": "allreduce", "route": "torch"}},
    "local": {"consistency": {"name": "local", "period": 2}},
    "gossip": {"consistency": "gossip"},
    "sharded": {"partition": {"name": "sharded", "level": 2}},
    "servers, bsp": {"exchange": {"name": "server", "servers": 1}},
    "servers, async": {"exchange": {"name": "server", "servers": 1}, "consistency": "async"},
}
WHOLE_RULES = {"optimizer adafactor", "optimizer lamb", "optimizer lars", "optimizer lbfgs", "optimizer muon"}
WORKERS_IN_STEP = {"batch norm of all", "states kept between batches", "a stream in shards"}
REFUSED: dict[str, set[str]] = {
    "local": {"batch norm of all"},
    "gossip": {"batch norm of all"},
    "sharded": WHOLE_RULES | {"adaptive clipping"},
    "servers, bsp": WORKERS_IN_STEP,
    "servers, async": WORKERS_IN_STEP | {"optimizer lbfgs", "clipped"},
}
HANDFUL = (
    "mix mixup",
    "weights of a file",
    "class weights",
    "recompute",
    "thawed",
    "adaptive clipping",
    "average swa",
    "drawn by class",
)


def made(feature: Feature, strategy: str, steps: int = STEPS) -> Session:
    return session_of(feature, {"workers": 2, **STRATEGIES[strategy]}, steps)


def session_of(feature: Feature, strategy: dict[str, Any], steps: int = STEPS) -> Session:
    settings = {**train(), **feature.settings, "strategy": strategy}
    settings["train"] = {**settings["train"], "steps": steps}
    if feature.symbols:
        text = {"name": "text", "path": __file__, "length": 8}
        besides = {"network": GPT, "checkpoint": {"every": "never"}}
        data = {"source": text, "batch_size": 12, "shuffle": settings.pop("shuffle", True)}
        return Session(data=data, **{**besides, **settings})
    settings = {"source": {"name": "small_images"}, "batch_size": 12, **settings}
    return session(feature.network, of=feature.of, **settings)


Parameters = dict[str, torch.Tensor]


def run(rank: int, world_size: int, one: Session, folder: str, stop: int | None = None) -> Parameters | None:
    """The parameters that a worker has in the end; over servers those of the last checkpoint, on the first one.

    Of an average of the weights what the last checkpoint has of it, too, on the first worker.
    """
    if one.weights is not None and rank == 0:
        begun(one, folder)
    if one.strategy.servers:
        kept = served(rank, world_size, one, folder, None if stop is None else dict.fromkeys(range(2), stop))
        found = kept.parameters if kept is not None and rank == 0 else None
        saved = Path("runs") / folder / "checkpoints"
    else:
        found = staged(rank, world_size, one, folder, until=lambda at: stop is not None and at >= stop).parameters
        saved = Path(folder)
    return found if rank or found is None else {**found, **averages(one, saved.absolute())}


def begun(one: Session, folder: str) -> None:
    """Write the first checkpoint of a run that begins from weights, as its driver does, if it has none yet."""
    where = Path(folder).absolute()
    if one.strategy.servers:
        run = Path("runs") / folder
        new = not run.exists()
        at = RunDirectory.create(run.parent, folder, "it", one.to_yaml(), Quick()) if new else RunDirectory(run)
        where = at.checkpoints
    where.mkdir(exist_ok=True)
    if Checkpoints(where).steps():
        return
    torch.manual_seed(7)
    torch.save(Dropping().state_dict(), FILE)
    seed_all(one.train.seed)
    model = build_model(one, torch.device("cpu"))
    begin(model)
    untrained(model.module).write(Checkpoints(where, Quick()))


def averages(one: Session, folder: Path) -> Parameters:
    """The averages in the last checkpoint, by the name of the parameter, if it has some."""
    if isinstance(one.train.average, NoAverage) or not (steps := Checkpoints(folder).steps()):
        return {}
    found, manifest = Checkpoints(folder).path(steps[-1]), Checkpoints(folder).manifest(steps[-1])
    state, parameters = OptimizerState.read(found, manifest), build_model(one, torch.device("cpu")).module
    each = {
        f"average of {name}": state.of(Range(name, 0, values.numel())).each
        for name, values in parameters.named_parameters()
    }
    return {name: entries["average"].clone() for name, entries in each.items() if "average" in entries}


def tried(rank: int, world_size: int, feature: Feature, strategy: str, folder: str) -> str:
    """The fault of a training; empty if there is none. A refusal is its sentence."""
    try:
        one = made(feature, strategy)
        whole = run(rank, world_size, one, f"{folder}-whole")
    except SettingError as error:
        return f"refused: {error}"
    for stop in feature.stops:
        elastic = one.strategy.consistency.elastic  # who is asked to end there leaves, and the others go on
        first = made(feature, strategy, stop) if elastic else one
        before = run(rank, world_size, first, f"{folder}-{stop}", None if elastic else stop)
        after = run(rank, world_size, one, f"{folder}-{stop}")
        if whole is None or before is None or after is None:
            continue
        if not all(bool(values.isfinite().all()) for values in after.values()):
            return f"resumed after step {stop}: not finite"
        if not elastic and not all(torch.equal(after[name], one) for name, one in whole.items()):
            return f"resumed after step {stop}: another result"
        if all(torch.equal(before[name], whole[name]) for name in before):
            return f"stopped after step {stop}: nothing was left to do"
    return ""


def all_tried(rank: int, world_size: int, strategy: str, names: tuple[str, ...]) -> dict[str, str]:
    return {name: tried(rank, world_size, FEATURES[name], strategy, f"{number}") for number, name in enumerate(names)}


def judge(found: dict[str, str], strategy: str) -> None:
    refused = {name for name, said in found.items() if said.startswith("refused: ") and "accepted: " in said}
    assert refused == REFUSED.get(strategy, set()) & set(found), {name: found[name] for name in refused}
    assert {name: said for name, said in found.items() if said and name not in refused} == {}


@pytest.mark.slow  # each feature is resumed by a test of its own
def test_a_handful_of_features_is_resumed_bit_for_bit_by_two_workers(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for found in workers(2, all_tried, "bsp", HANDFUL):
        judge(found, "bsp")


@pytest.mark.slow  # a minute each, and more
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_feature_is_refused_or_resumed_at_each_of_its_boundaries(strategy, workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    count = 3 if "server" in STRATEGIES[strategy].get("exchange", {}).get("name", "") else 2
    for found in workers(count, all_tried, strategy, tuple(FEATURES), at_most_s=800.0):
        judge(found, strategy)
