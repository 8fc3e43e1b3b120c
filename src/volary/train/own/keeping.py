"""Checkpoints of a user's own loop: `worker.save`, `worker.restore`, `worker.epochs`, and the places of its feeds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from volary.errors import BadInput
from volary.run.checkpoints import Manifest, read
from volary.train.own.plain_values import ACCEPTED, keepable, loads
from volary.train.state.checkpoint import SHARED
from volary.train.state.committing import Committing
from volary.train.state.rank_state import RESIDUALS, rank_file, rank_states
from volary.train.state.seeds import generators_state, restore_generators
from volary.train.state.state_file import state_content, unpacked
from volary.train.state.weights import WEIGHTS, SavedWeights, weights_content
from volary.train.strategies.strategy_state import StrategyState

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.run.content import Content
    from volary.train.own.model.share import Share
    from volary.train.own.own_feed import OwnFeed
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts

MODEL = "model"  # saved under this name, a network is what `volary export` writes
_STATES = "what has state_dict() and load_state_dict(), " + ACCEPTED


@dataclass
class LoopState:
    """A checkpoint that the run resumes from, and that its parts have yet to take up.

    named: what `worker.save` was given. mine: of this rank; rank 0's place, without its generators, where the run had
    no such rank.
    """

    manifest: Manifest
    named: Mapping[str, Any]
    ways: list[Any]
    mine: Mapping[str, Any]
    residuals: list[list[Any]]
    restored: bool = False


@dataclass
class LoopPlace:
    """Where the loop is. epoch: of `worker.epochs`, which is used. feeds: by the order in which they were first fed."""

    epoch: int = 0
    counted: bool = False
    feeds: list[OwnFeed] = field(default_factory=list)

    @property
    def within(self) -> bool:
        """Whether it is among the batches of an epoch."""
        return any(feed.under_way for feed in self.feeds)


class Keeping:
    """The checkpoints of one run, written by all ranks together. drafts: None where there is no run to keep."""

    def __init__(self, group: Group, recorder: Recorder, drafts: Drafts | None, share: Share) -> None:
        self._group, self._recorder, self._drafts, self._share = group, recorder, drafts, share
        self._place = LoopPlace()
        self._strategies: list[StrategyState] = []
        self._names: list[str] | None = None  # as worker.restore was given them
        self._checked: set[str] = set()
        self._gathered = 0
        self._saved = self._found()
        if self._saved is not None:
            recorder.go_on_from(self._saved.manifest.step)
            share.seen = self._saved.mine.get("seen", 0)
            if group.rank == 0:
                recorder.event("resumed", from_step=self._saved.manifest.step)

    def strategy_state(self) -> StrategyState:
        """Of the next model that is distributed: new, or as it was saved."""
        state, number = StrategyState(), len(self._strategies)
        if self._saved is not None and number < len(self._saved.ways):
            state.restore(self._saved.ways[number])
            state.restore_rank([rank[number] for rank in self._saved.residuals if number < len(rank)])
        self._strategies.append(state)
        return state

    def follow(self, feed: OwnFeed) -> None:
        """Keep where this feed is, too; it goes on where it was. Raises BadInput if it cannot."""
        number = len(self._place.feeds)
        self._place.feeds.append(feed)
        if self._saved is not None and number < len(self._saved.mine["feeds"]):
            saved = self._saved
            feed.resume(saved.mine["feeds"][number], saved.mine["generators"], saved.manifest.world_size)

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left. Raises BadInput in a resumed run before `worker.restore`."""
        if self._saved is not None and not self._saved.restored:
            raise BadInput(f"{self._resumes()} before worker.epochs")
        place = self._place
        place.counted = True
        if self._saved is not None:
            place.epoch, then = self._saved.mine["epoch"], self._saved.mine["generators"]
            if then is not None and not self._saved.mine["within"]:
                restore_generators(then)
        while place.epoch < count:
            yield place.epoch
            place.epoch += 1
            for feed in place.feeds:
                feed.begin_epoch()

    def restore(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Load the newest checkpoint of the run into what is named; see `Worker.restore`. Raises what that raises."""
        self._names = sorted(named)
        if self._saved is None:
            return dict(named)
        saved = self._saved
        if sorted(saved.named) != self._names:
            raise BadInput(
                f"worker.restore was given {_listed(self._names)}, and the checkpoint of step {saved.manifest.step} "
                f"holds {_listed(sorted(saved.named))}; accepted: the same names"
            )
        states = {**saved.named, **saved.mine.get("own", {})}  # not in checkpoints of earlier versions
        found = {name: _taken_up(name, value, states[name]) for name, value in named.items()}
        if saved.mine["generators"] is not None:
            restore_generators(saved.mine["generators"])
        saved.restored = True
        return found

    def save(self, named: Mapping[str, Any], *, own_optimizers: bool) -> None:
        """Write a checkpoint of what is named, on all workers; see `Worker.save`. Raises what that raises.

        own_optimizers: each worker's remembers something else, and is kept with it.
        """
        if self._saved is not None and not self._saved.restored:
            raise BadInput(f"{self._resumes()} before worker.save")
        if self._names != sorted(named):
            given = "not called" if self._names is None else f"given {_listed(self._names)}"
            raise BadInput(
                f"worker.save was given {_listed(sorted(named))}, and worker.restore was {given}; accepted: the same "
                "names, with worker.restore before the loop, so that the run can be resumed"
            )
        if self._place.within and not self._place.counted:
            raise BadInput(
                "worker.save was called among the batches of worker.feed, and nothing says in which epoch; accepted: "
                "`for epoch in worker.epochs(n)` around them"
            )
        states = {name: self._state_of(name, value) for name, value in named.items()}
        if self._drafts is None:
            if self._gathered == 0:
                print("worker.save keeps nothing, as no run was asked for: volary launch makes one", file=sys.stderr)
            self._gathered += 1
            return
        own = [name for name, value in named.items() if isinstance(value, Optimizer)] if own_optimizers else []
        self._write(self._drafts, states, {name: states[name] for name in own})

    def _write(self, drafts: Drafts, states: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        recorder, step = self._recorder, self._recorder.step
        recorder.saves += 1
        # steps that a checkpoint is beyond are never done again: they must be written down before it counts
        recorder.hand_over()
        phase = recorder.phase
        recorder.enter("checkpoint")
        committing = Committing(drafts, recorder, self._group.rank, self._gather)
        failure = committing.write(step, lambda: self._files(states, own))
        recorder.enter(phase)
        if failure and self._group.rank == 0:
            recorder.event("checkpoint_failed", reason=f"{failure}; training goes on, older checkpoints stay")

    def _gather(self, value: Any) -> list[Any]:
        """Over the bulletin: a rank that saves while another is in a step must not mix with its exchange."""
        self._gathered += 1
        return self._group.bulletin.share(f"save-{self._gathered}", value)

    def _files(self, states: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[str, Content]]:
        place = self._place
        mine = {
            "generators": generators_state(),
            "epoch": place.epoch + (place.counted and not place.within),
            "within": place.within,
            "seen": self._share.seen,
            "feeds": [feed.state(within=place.within) for feed in place.feeds],
            RESIDUALS: [one.rank_state() for one in self._strategies],
            "own": own,
        }
        yield rank_file(self._group.rank), state_content(mine)
        if self._group.rank == 0:
            named = dict(states)
            if isinstance(weights := named.get(MODEL), _Weights):
                yield WEIGHTS, weights_content(weights.tensors)
                named[MODEL] = {"weights": True}
            named = {name: {"state": one.tensors} if isinstance(one, _Weights) else one for name, one in named.items()}
            yield SHARED, state_content({"named": named, "ways": [one.state() for one in self._strategies]})

    def _state_of(self, name: str, value: Any) -> Any:
        if isinstance(value, nn.Module):
            state = value.state_dict()
            if all(isinstance(one, nn.Module | nn.Parameter) or hasattr(one, "dtype") for one in state.values()):
                return _Weights(state)
        if hasattr(value, "state_dict"):
            state = value.state_dict()
            if name not in self._checked and not loads(state):
                raise BadInput(f"worker.save: the state_dict() of {name} holds more than {ACCEPTED}")
            self._checked.add(name)
            return {"state": state}
        found, refused = keepable(value)
        for where, kind in refused.items():
            raise BadInput(f"worker.save: {name}{where} is a {kind}; accepted: {_STATES}")
        return {"value": found}

    def _resumes(self) -> str:
        assert self._saved is not None
        names = ", ".join(f"{name}=..." for name in self._saved.named)
        return f"the run resumes from step {self._saved.manifest.step}: call worker.restore({names})"

    def _found(self) -> LoopState | None:
        """The newest whole checkpoint; the same on every rank. Raises RunError if all are damaged."""
        if self._drafts is None:
            return None
        bulletin, rank = self._group.bulletin, self._group.rank
        if rank == 0:
            newest, warnings = self._drafts.take_up()
            for text in warnings:
                self._recorder.event("warning", text=text)
            bulletin.post("resume", newest)
        step = bulletin.read("resume", 0)
        if step is None:
            return None
        manifest = self._drafts.have(step, whole=True)
        path = self._drafts.checkpoints.path(step)
        shared = unpacked(read(path, manifest, SHARED), path / SHARED)
        states = rank_states(path, manifest, rank, self._group.size)
        mine = states[0] or unpacked(path / rank_file(0), path / rank_file(0)) | {"generators": None}
        residuals = [state[RESIDUALS] for state in states if state]
        named = dict(shared["named"])
        if named.get(MODEL) == {"weights": True}:
            weights = SavedWeights(path, manifest)
            named[MODEL] = {"state": {name: weights.whole(name) for name in weights}}
        return LoopState(manifest, named, shared["ways"], mine, residuals)


@dataclass(frozen=True)
class _Weights:
    """The state of a module, of tensors alone."""

    tensors: Mapping[str, Any]


def _taken_up(name: str, value: Any, saved: Any) -> Any:
    """A value as it was saved: an object that has taken up its state, or the plain value."""
    if "value" in saved:
        return saved["value"]
    if not hasattr(value, "load_state_dict"):
        kind = type(value).__name__
        raise BadInput(f"worker.restore: {name} was saved as a state_dict(), and is a {kind}, which cannot load one")
    value.load_state_dict(saved["state"])
    if isinstance(value, Optimizer):
        value._opt_called = True  # type: ignore[attr-defined]  # in an earlier life: schedules ask, and warn
    return value


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nothing"
