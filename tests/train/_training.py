"""A session trained in the process of a test, as one of the ranks of a group that has been joined."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _workers import alone, joined
from volary.comm.groups.group import Group
from volary.run.checkpoints import Checkpoints
from volary.run.disk import Disk
from volary.session import Session
from volary.train.agreement.first_state import share_buffers
from volary.train.loop import Outcome, Training, train
from volary.train.model import build_model
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.trial import try_session
from volary.train.worker.build import assemble

USER_DATA, USER_LOSSES, USER_NETWORKS = (
    Path(__file__).with_name(f"_user_{of}.py") for of in ("data", "losses", "networks")
)
_lives = itertools.count()


OVERLAPPED = {"exchange": {"name": "allreduce", "route": "torch"}}  # a strategy under which updates come as sums do


def session(network: str, /, *, of: dict[str, Any] | None = None, **settings: Any) -> Session:
    """A session of `_user_networks.py`'s network of that name, on `_user_data.py`'s points: 20 steps, or as told.

    of: the network's own arguments. chosen: which samples, and how often: folds, a split, sampling.
    """
    source = settings.pop("source", {"name": "points"})
    return Session(
        network={"name": f"{USER_NETWORKS}:{network}", **(of or {})},
        data={
            "source": {**source, "name": f"{USER_DATA}:{source['name']}"},
            "batch_size": settings.pop("batch_size", 10),
            "batch": settings.pop("batch", "fixed"),
            "shuffle": settings.pop("shuffle", True),
            **settings.pop("chosen", {}),
        },
        **{
            "optimizer": {"name": "sgd", "lr": 0.2, "momentum": 0.9},
            "train": {"steps": 20},
            "evaluate": {"every": "never"},
            "checkpoint": {"every": "never"},
            **settings,
        },
    )


class Quick(Disk):
    """Waits for no real disk."""

    def sync(self, path: Path) -> None:
        assert path.exists()


@dataclass
class Trained:
    """The result of a training, on one rank. said: events, notes and metrics in order."""

    parameters: dict[str, Tensor]
    outcome: Outcome | None
    rows: list[Any]
    said: list[dict[str, Any]]

    @property
    def losses(self) -> list[float]:
        """The losses of every step, over the global batch."""
        return [row.loss for row in self.rows]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The data of every event of that kind."""
        return [one["data"] for one in self.said if one.get("event") == kind]

    def notes(self, name: str) -> list[str]:
        """Every value of that fact about the run."""
        return [one["note"][name] for one in self.said if name in one.get("note", {})]

    @property
    def metrics(self) -> list[tuple[int, dict[str, float]]]:
        """Step and figures of every evaluation."""
        return [(one["step"], one["metrics"]) for one in self.said if "metrics" in one]


def made(
    rank: int,
    world_size: int,
    session: Session,
    folder: Path | str = "checkpoints",
    *,
    disk: Disk | None = None,
    until: Callable[[int], bool] = lambda _: False,
    group: Group | None = None,
    asked: Callable[[int], Sequence[Any]] = lambda _: (),
) -> Training:
    """A training as a worker assembles it, before it resumes anything. until: asks it to end after such a step.

    group: in which this is rank `rank` of `world_size`; None: that of all workers. asked: what its run has been asked
    to do before such a step.
    """
    seed_all(session.train.seed)
    model = build_model(session, torch.device("cpu"))
    if group is None:
        group = joined(next(_lives)) if world_size > 1 else alone()
    share_buffers(model.module, group)
    Path(folder).mkdir(exist_ok=True)
    recorder, cpu = Recorder(rank), torch.device("cpu")
    wanted = rank == 0 and session.strategy.codec.chooses
    return assemble(
        model,
        group=group,
        device=cpu,
        recorder=recorder,
        drafts=_drafts(session, recorder, Path(folder).absolute(), disk),
        asked_to_end=lambda: until(recorder.step + 1),
        requests=lambda: asked(recorder.step + 1),
        estimate=try_session(model, cpu, world_size, started=True).estimate if wanted else None,
    )


def assert_parameters(found: Trained, expected: Trained, atol: float, where: object) -> None:
    """Both have trained the same parameters. where: for the message."""
    for name, values in expected.parameters.items():
        torch.testing.assert_close(
            found.parameters[name], values, rtol=0, atol=atol, msg=lambda text, name=name: f"{where}, {name}: {text}"
        )


def _drafts(session: Session, recorder: Recorder, folder: Path, disk: Disk | None) -> DirectoryDrafts:
    kept = session.checkpoint
    return DirectoryDrafts(Checkpoints(folder, disk), recorder, kept.keep_last, keep_best=kept.keep_best)


@contextmanager
def started(it: Training) -> Iterator[None]:
    """Let its ranks exchange meanwhile."""
    try:
        it.coordinator.rank.replica.start(it.coordinator.saver.late)
        yield
    finally:
        it.replica.close()
        it.coordinator.saver.finish()


def looked_at(it: Training, outcome: Outcome | None = None) -> Trained:
    """The result of a training, in values that can be sent."""
    parameters = {name: p.detach().clone() for name, p in it.flow.module.named_parameters()}
    return Trained(parameters, outcome, list(it.recorder.rows), list(it.recorder.events))


def trained(rank: int, world_size: int, session: Session, folder: Path | str = "checkpoints", **more: Any) -> Trained:
    """Train a session from its beginning, or from the newest checkpoint in `folder`."""
    it = made(rank, world_size, session, folder, **more)
    it.coordinator.saver.resume()
    with started(it):
        found = looked_at(it, train(it))
        if "all parameters" in session.strategy.partition.lacks:
            it.coordinator.rank.group.bulletin.share("looked at", 1)  # others may still gather what this worker keeps
        return found
