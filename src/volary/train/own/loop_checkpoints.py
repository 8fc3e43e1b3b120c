"""Checkpoints of a user's own loop: `worker.save`, `worker.restore`, `worker.epochs`, and the places of its feeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn
from torch.optim import Optimizer

from volary.errors import BadInput
from volary.run.checkpoints import SHARED, Manifest, read
from volary.train.own.saving.divided_states import joined, rest, share_file, shares
from volary.train.own.saving.saved_values import SavedValues
from volary.train.state.optimizer_state import OUTER, OptimizerState
from volary.train.state.rank_state import HELD, PARAMETERS, RESIDUALS, rank_file, rank_states
from volary.train.state.seeds import generators_state, restore_generators
from volary.train.state.state_file import StateContent, unpacked
from volary.train.state.stateful import CheckpointParts
from volary.train.state.weights import WEIGHTS, weights_content, weights_of
from volary.train.strategies.averaging.rank_parameters import turn_of
from volary.train.strategies.strategy_state import STRATEGY, StrategyState, renamed

if TYPE_CHECKING:
    from volary.train.own.loop_feed import FeedPosition, LoopFeed
    from volary.train.own.model.share import Share
    from volary.train.own.parts.cut_model import CutModel
    from volary.train.own.saving.saved_values import Distributed
    from volary.train.recording.recorder import Recorder
    from volary.train.state.held import Savable

Files = Callable[[], "Iterable[tuple[str, Savable]]"]  # a worker's files, by name
_COUNTED = (
    "accepted: `for epoch in worker.epochs(n)` around them, or in a loop without epochs "
    "`batches = (batch for _ in worker.epochs(n) for batch in worker.feed(loader))` and next(batches)"
)


class LoopSaver(Protocol):
    """Writes checkpoints of a loop of one's own, and finds the newest. size: workers that the run began with."""

    rank: int
    size: int

    def find(self, *, whole: bool) -> tuple[Manifest, Path] | None:
        """The one that the run resumes from, and the folder of its files; the same on all workers. Raises RunError.

        whole: all its files are there, not this rank's alone.
        """
        ...

    def save(self, parts: CheckpointParts) -> None:
        """Write one, on all workers; a full disk is a warning of the run."""
        ...


@dataclass
class LoopState:
    """A checkpoint that the run resumes from, and that its parts have yet to take up.

    named: what `worker.save` was given. mine: of this rank; the place of one that has saved, without its generators,
    where this one has not. folder: of its files.
    """

    manifest: Manifest
    folder: Path
    named: Mapping[str, Any]
    strategies: list[Any]
    mine: Mapping[str, Any]
    residuals: list[tuple[list[Any], list[Any]]]  # of codecs, with what their rank held of the model
    restored: bool = False


@dataclass
class LoopPlace:
    """The loop's place. epoch: of `worker.epochs`. counted: that is used. feeds: in the order of their first use."""

    epoch: int = 0
    counted: bool = False
    feeds: list[LoopFeed] = field(default_factory=list)

    @property
    def within(self) -> bool:
        """Whether it is among the batches of an epoch."""
        return any(feed.under_way for feed in self.feeds)


class LoopCheckpoints:
    """Saves one run's loop, and restores it.

    saver: None if no run is to be kept; another one once a worker is lost and the others go on. on_servers: networks on
    servers. distributed: the models that workers have.
    """

    def __init__(
        self,
        saver: LoopSaver | None,
        recorder: Recorder,
        share: Share,
        on_servers: Callable[[], Sequence[nn.Module]] = tuple,
        distributed: Callable[[], Sequence[Distributed]] = tuple,
    ) -> None:
        self.saver, self._recorder, self._share = saver, recorder, share
        self._distributed, self._values = distributed, SavedValues(on_servers, distributed)
        self._place = LoopPlace()
        self._strategies: list[StrategyState] = []
        self._names: list[str] | None = None  # as worker.restore was given them
        self._expected: Mapping[str, Any] = {}  # what it was given
        self._warned = False  # that nothing is kept
        self._asked = False  # whether epochs are counted
        self._saved = self._found()
        if self._saved is not None:
            recorder.go_on_from(self._saved.manifest.step)
            share.seen = self._saved.mine.get("seen", 0)
            if recorder.leads:
                recorder.event("resumed", from_step=self._saved.manifest.step)

    def strategy_state(self) -> StrategyState:
        """The strategy's state for the next model that is distributed: new, or as it was saved."""
        state, number = StrategyState(), len(self._strategies)
        if self._saved is not None and number < len(self._saved.strategies):
            state.restore(self._saved.strategies[number])
            state.outer.restore(self._outer(number).plain())
            state.restore_rank(self._residuals(number, []))
        self._strategies.append(state)
        return state

    def state(self, replicas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The state of the loop for a worker that joins, as a checkpoint would have it: tensors are not copied.

        replicas: what this worker alone has of its models, of which the other one gets whose turn is next.
        """
        strategies = [{**one.state(), "outer": one.outer.state()} for one in self._strategies]
        named = {name: {"state": value.state_dict()} for name, value in self._expected.items()}
        turns = [turn_of(one.get(PARAMETERS, {}), 0) for one in replicas]
        step = self._recorder.step
        return {"step": step, "named": named, STRATEGY: strategies, "place": self._here(), "turns": turns}

    def take_over(self, state: Mapping[str, Any], workers: int) -> None:
        """Go on from the state of another worker, as if it were a checkpoint of this run. workers: from now on."""
        manifest = Manifest(state["step"], 0, {})
        replicas = [{PARAMETERS: {**turn, "workers": workers}} if turn else {} for turn in state["turns"]]
        mine = {"own": {}, "generators": None, PARAMETERS: replicas, **state["place"]}
        self._saved = LoopState(manifest, Path(), state["named"], state[STRATEGY], mine, [])
        self._recorder.go_on_from(manifest.step)
        self._share.seen = mine["seen"]
        for number, one in enumerate(self._strategies):
            one.restore(state[STRATEGY][number])
            one.outer.restore(self._outer(number).plain())
        for feed, place in zip(self._place.feeds, mine["feeds"], strict=False):
            feed.resume(place, None, 0)

    @property
    def names(self) -> list[str]:
        """The names that `worker.restore` was given."""
        return self._names or []

    @property
    def why_not_joined(self) -> str:
        """A sentence why nobody can begin in the middle of this loop; empty if somebody can."""
        return "" if self._place.counted else f"its loop takes batches outside of worker.epochs; {_COUNTED}"

    def is_outermost(self, asked: FeedPosition) -> bool:
        """Whether this feed was the first one to be used, of those whose epoch is under way."""
        return next((feed.is_at(asked) for feed in self._place.feeds if feed.under_way), False)

    def hold(self, number: int, cut: CutModel) -> None:
        """Let the strategy of model `number`, of which workers hold parts, go on with what was saved of this one's."""
        if self._saved is not None and number < len(self._saved.strategies):
            outer = self._outer(number).within(cut.holdings.blocks)
            self._strategies[number].outer.restore(outer.plain())
            self._strategies[number].restore_rank(self._residuals(number, cut.held))

    def _outer(self, number: int) -> OptimizerState:
        """The whole state of the outer rule of model `number`, whoever wrote it."""
        assert self._saved is not None
        kept = self._saved.strategies[number].get("outer")  # not in checkpoints of earlier versions
        if kept or number:
            return OptimizerState.from_plain(kept or [])
        return OptimizerState.read(self._saved.folder, self._saved.manifest, OUTER, averages=False)

    def _residuals(self, number: int, now: list[Any]) -> list[Any]:
        """The residuals of ranks that held the same of model `number` as this one holds `now`."""
        assert self._saved is not None
        return [rank[number] for then, rank in self._saved.residuals if number < len(rank) and then == now]

    def replica(self, number: int) -> Mapping[str, Any]:
        """This worker's own state of model `number`, in the order of their distribution; after `restore`."""
        saved = self._saved
        same = saved is not None and saved.restored and saved.mine.get(HELD, []) == self._held
        replicas = saved.mine.get(PARAMETERS, []) if saved is not None and same else []
        return replicas[number] if number < len(replicas) else {}

    def follow(self, feed: LoopFeed) -> None:
        """Keep where this feed is, too; it goes on where it was. Raises BadInput if it cannot."""
        if any(known is feed for known in self._place.feeds):
            return
        number = len(self._place.feeds)
        self._place.feeds.append(feed)
        if self._saved is not None and number < len(self._saved.mine["feeds"]):
            saved = self._saved
            feed.resume(saved.mine["feeds"][number], saved.mine["generators"], saved.manifest.world_size)

    def begin_batch(self) -> None:
        """A batch is about to be given out: say once if a checkpoint among batches would be refused, before hours."""
        if self._asked or self._names is None or self.saver is None:
            return
        self._asked = True
        if not self._place.counted and self._recorder.leads:
            text = (
                "the loop has called worker.restore, and takes batches outside of worker.epochs: worker.save is refused"
            )
            self._recorder.event("warning", text=f"{text} among them, as nothing says in which epoch; {_COUNTED}")

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
            place.epoch += 1 + max([feed.begin_epoch() for feed in place.feeds], default=0)

    def expect(self, named: Mapping[str, Any]) -> None:
        """Note what `worker.restore` is given."""
        self._names, self._expected = sorted(named), named

    def restore(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Load the newest checkpoint of the run into what is named; see `Worker.restore`. Raises what that raises."""
        self.expect(named)
        if self._saved is None:
            return dict(named)
        saved = self._saved
        if sorted(saved.named) != self._names:
            raise BadInput(
                f"worker.restore was given {_listed(self.names)}, and the checkpoint of step {saved.manifest.step} "
                f"holds {_listed(sorted(saved.named))}; accepted: the same names"
            )
        own = saved.mine.get("own", {}) if saved.mine.get(HELD, []) == self._held else {}
        states = {**saved.named, **own}
        found = self._values.taken_up(named, states, saved.folder, saved.manifest)
        if saved.mine["generators"] is not None:
            restore_generators(saved.mine["generators"])
        saved.restored = True
        return found

    def save(
        self, named: Mapping[str, Any], *, updates_locally: bool, replicas: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Write a checkpoint of what is named, on all workers; see `Worker.save`. Raises what that raises.

        updates_locally: each worker's optimisers, schedules and scalers remember something else, and are kept with it.
        replicas: what this worker alone has of its models.
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
                f"worker.save was called among the batches of worker.feed, and nothing says in which epoch; {_COUNTED}"
            )
        states = self._values.states(named)
        if self.saver is None:
            if not self._warned:
                print("worker.save keeps nothing, as no run was asked for: volary launch makes one", file=sys.stderr)
            self._warned = True
            return
        kept = self._values.own(named, states) if updates_locally else {}
        outer = self._strategies[0].outer.state() if self._held else []
        files: Files = self._values.in_parts(named, self.saver.rank, outer) or tuple
        if files is tuple and not updates_locally:
            states, files = self._divided(self.saver, named, states)
        self._write(self.saver, states, {"own": kept, PARAMETERS: replicas, HELD: self._held}, files)

    def _divided(
        self, saver: LoopSaver, named: Mapping[str, Any], states: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Files]:
        """The states without the tensors of optimisers that workers write in shares, and this one's file of these."""
        remembered = {name: states[name]["state"] for name in self._values.alike_optimizers(named)}
        _, weights = self._values.alike(states)
        beside = sum(one.nbytes for one in (weights or {}).values())
        mine = shares({name: one["state"] for name, one in remembered.items()}, saver.size, beside)[saver.rank]
        left = {name: {"state": {**one, "state": rest(one["state"])}} for name, one in remembered.items()}
        return {**states, **left}, lambda: [(share_file(saver.rank), StateContent(mine))] if mine else []

    @property
    def expected_values(self) -> list[Any]:
        """The values that `worker.restore` was given."""
        return list(self._expected.values())

    @property
    def _held(self) -> list[Any]:
        """The parts of the model that this worker holds; empty: all of it."""
        return next((one.cut.held for one in self._distributed() if one.cut is not None), [])

    def expected(self, *, updates_locally: bool) -> CheckpointParts:
        """The largest checkpoint that this worker is going to write, as it is now."""
        given, saver = self._expected.values(), self.saver
        weights = [weights_of(one) for one in given if isinstance(one, nn.Module)]
        # not as saved: that may be a call of all
        updated = {str(number): one.state for number, one in enumerate(given) if isinstance(one, Optimizer)}
        share: Any = []
        if not updates_locally and saver is not None:
            beside = sum(tensor.nbytes for one in weights for tensor in one.values())
            share = shares(updated, saver.size, beside)[saver.rank]
        return CheckpointParts(
            lambda: {"own": list(map(dict, updated.values())) if updates_locally else share},
            lambda: [(SHARED, StateContent(weights))],
        )

    def _write(
        self,
        saver: LoopSaver,
        states: Mapping[str, Any],
        own: Mapping[str, Any],
        kept: Files,
    ) -> None:
        phase = self._recorder.phase
        self._recorder.begin_save()
        here = self._here()
        residuals = [one.rank_state() for one in self._strategies]
        mine = {**here, "generators": generators_state(), RESIDUALS: residuals, **own}
        saver.save(CheckpointParts(lambda: mine, lambda: self._alike(states, here), kept))
        self._recorder.enter(phase)

    def _here(self) -> dict[str, Any]:
        """The place of the loop."""
        place = self._place
        return {
            "epoch": place.epoch + (place.counted and not place.within),
            "within": place.within,
            "seen": self._share.seen,
            "feeds": [feed.state(within=place.within) for feed in place.feeds],
        }

    def _alike(self, states: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[tuple[str, Savable]]:
        named, weights = self._values.alike(states)
        if weights is not None:
            yield WEIGHTS, weights_content(weights)
        strategies = [{**one.state(), "outer": [] if self._held else one.outer.state()} for one in self._strategies]
        yield SHARED, StateContent({"named": named, STRATEGY: strategies, "place": here})

    def _resumes(self) -> str:
        assert self._saved is not None
        names = ", ".join(f"{name}=..." for name in self._saved.named)
        return f"the run resumes from step {self._saved.manifest.step}: call worker.restore({names})"

    def _found(self) -> LoopState | None:
        """The newest whole checkpoint; the same on every rank. Raises RunError if all are damaged."""
        found = None if self.saver is None else self.saver.find(whole=True)
        if self.saver is None or found is None:
            return None
        manifest, path = found
        shared = renamed(unpacked(read(path, manifest, SHARED), path / SHARED))
        states = rank_states(path, manifest, self.saver.rank, self.saver.size)
        if "place" in shared:
            mine = {"own": {}, "generators": None, **shared["place"], **states[0]}
        else:  # of an earlier version
            mine = states[0] or unpacked(path / rank_file(0), path / rank_file(0)) | {"generators": None}
        residuals = [(state.get(HELD, []), state[RESIDUALS]) for state in states if state]
        named = joined(shared["named"], path, manifest)
        return LoopState(manifest, path, named, shared[STRATEGY], mine, residuals)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nothing"
