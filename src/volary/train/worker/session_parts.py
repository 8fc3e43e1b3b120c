"""The parts of a session's run in a checkpoint: all that decides its rest, so that it continues bit for bit."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from volary.comm.groups.leading import from_leader
from volary.naming import named_buffers
from volary.run.checkpoints import ROSTER, SHARED, Manifest, read
from volary.sharding.groups import LEADER
from volary.train.agreement.first_state import DeferredTensors
from volary.train.agreement.votes import Agreed
from volary.train.recovery.kept_state import KeptState
from volary.train.state.optimizer_state import OPTIMIZER, OUTER, OptimizerState, optimizer_file, part_files
from volary.train.state.rank_state import (
    HELD,
    PARAMETERS,
    PRECISION,
    RESIDUALS,
    STREAMS,
    PerWorkerState,
    held,
    rank_states,
    states_of_all,
)
from volary.train.state.rank_state import OPTIMIZER as RANK_OPTIMIZER
from volary.train.state.seeds import StepGenerators, generators_state, restore_generators
from volary.train.state.skeleton import blank, put_together, taken_apart
from volary.train.state.state_file import StateContent, unpacked
from volary.train.state.stateful import CheckpointParts
from volary.train.state.weights import (
    WEIGHTS,
    SavedWeights,
    ScatteredWeights,
    load_buffers,
    load_weights,
    weights_content,
    weights_file,
    weights_of,
)
from volary.train.strategies.averaging.rank_parameters import turn_of
from volary.train.strategies.strategy_state import renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from volary.partition._base import Part
    from volary.train.model import TrainedNetwork
    from volary.train.recording.recorder import Recorder
    from volary.train.saving.saver import GroupSaver
    from volary.train.state.held import Savable
    from volary.train.state.progress import Progress
    from volary.train.state.stateful import RankState, Stateful

_OUTER = "outer"  # among the parts
_RULES = {"update": OPTIMIZER, _OUTER: OUTER}  # of which servers, too, write each its slices


@dataclass(frozen=True)
class AlikeParts:
    """The parts that all ranks hold alike, by name. read: those that change as batches are read, whose states are plain
    values made anew; others: those that do not, up to an update or an evaluation.
    """

    read: Mapping[str, Stateful]
    others: Mapping[str, Stateful]


class SessionParts:
    """See `volary.train.coordinator.Saver`. Of workers that keep step; `saver` writes them.

    part: what a rank runs. network: with what updates what the rank keeps; updates_locally: each rank has an optimiser
    and a loss scale of its own. Rank 0 writes the parameters and `parts`, which all ranks hold alike; each rank its
    random generators, the network's buffers, `own`, and what the optimiser remembers of what it owns, or a share if all
    have it. Where no rank has the whole network, or memory for it, each writes of the parameters, too, what it owns,
    and reads what it keeps.
    """

    def __init__(
        self,
        saver: GroupSaver,
        recorder: Recorder,
        part: Part,
        network: TrainedNetwork,
        parts: AlikeParts,
        own: Mapping[str, RankState],
        progress: Progress,
        *,
        updates_locally: bool,
    ) -> None:
        self._saver, self._recorder = saver, recorder
        self._module, self._holdings = part.module, part.holdings
        self._scattered = ScatteredWeights(part.module, part.scattered) if part.scattered else None
        self._update: Stateful = network.update
        self._averages_by = (_OUTER if updates_locally else "update") if network.averages else ""
        self._parts: dict[str, Stateful] = {**parts.read, **parts.others, PRECISION: network.precision}
        self._own = dict(own)
        if updates_locally:
            self._update = self._own[RANK_OPTIMIZER] = PerWorkerState(RANK_OPTIMIZER, network.update)
            self._parts[PRECISION] = self._own[PRECISION] = PerWorkerState(PRECISION, network.precision)
        # what all have alike is copied and written by all, a share each: a save is as long as the longest of them takes
        self._divides = saver.size > 1 and not (updates_locally or self._in_parts)
        self._progress = progress
        self._changing = None if updates_locally else parts.read
        self._layers, self._generators = list(part.module.modules()), StepGenerators()
        self._draws = part.holdings.draws_as == saver.rank  # its own random numbers
        # the newest step: what all have alike that changes before all agree on an update, and own
        self._before: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        self.late = DeferredTensors()

    @property
    def newest(self) -> str:
        self._saver.finish()
        return f"step {self._saver.saved}" if self._saver.saved else "none yet"

    def prepare(self) -> None:
        self._saver.prepare(self._of_this_rank)

    def save(self, metric: float | None, *, last: bool = False) -> None:
        if self._recorder.step == self._saver.begun and not (last and self._saver.settle()):
            return
        self._recorder.begin_save()
        self._saver.save(self._of_this_rank, metric, last=last)

    def finish(self) -> None:
        self._saver.finish()

    def resume(self) -> Manifest | None:
        found = self._saver.find(whole=self._in_parts)
        if found is None:
            return None
        manifest, folder = found
        self._restore(manifest, folder)
        self._recorder.go_on_from(manifest.step)
        return manifest

    def remember(self) -> None:
        self._before = self._changing_states(), self._rank_copy()

    def keep(self, step: int, due: Agreed | None, begun: int) -> KeptState:
        alike, own_now = self._parts_states(), self._rank_copy()
        own = own_now
        if due is None:
            alike, own = alike | self._before[0], self._before[1]
        update = own[RANK_OPTIMIZER][RANK_OPTIMIZER] if RANK_OPTIMIZER in own else self._update.state()
        agreed = None if due is None else asdict(due) | {"requests": 0}  # these are numbered anew
        return KeptState(step, {"update": update, **alike}, own, own_now, agreed, begun, self._saver.saved)

    def remembered(self) -> KeptState:
        alike, own = deepcopy(self._parts_states()) | self._before[0], self._before[1]
        return KeptState(self._recorder.step, alike, own, own, None, 0, self._saver.saved)

    def take_over(self, kept: KeptState, *, shared: bool = False) -> tuple[Agreed, int] | None:
        parts: dict[str, Stateful] = {"update": self._update, **self._parts}
        if shared:
            del parts["update"]

        def posted() -> dict[str, Any]:
            turn = turn_of(kept.own_at(kept.step).get(PARAMETERS, {}), self._saver.size)
            return {"step": kept.step, "due": kept.due, "begun": kept.begun, "saved": kept.saved, "turn": turn}

        posted_by_first = from_leader(self._saver.bulletin, "goes on", posted)
        own = kept.own_at(posted_by_first["step"])
        if PARAMETERS in own:  # it is the same worker, however many there are now
            own[PARAMETERS]["workers"] = self._saver.size
        elif posted_by_first["turn"]:
            own[PARAMETERS] = posted_by_first["turn"]
        self._spread(parts, kept.alike if self._holdings.leads else None)
        self.late = replace(self.late, shares=False)  # rank 0 has all parameters
        self._restore_own([own, *({RESIDUALS: state} for state in kept.inherited.values())], own)
        self._saver.begun = self._saver.saved = posted_by_first["saved"]
        self._recorder.go_on_from(posted_by_first["step"])
        due = posted_by_first["due"]
        return None if due is None else (_agreed(due), posted_by_first["begun"])

    @property
    def _held(self) -> list[Any]:
        return held(self._module, self._holdings, locally=RANK_OPTIMIZER in self._own)

    @property
    def _of_this_rank(self) -> CheckpointParts:
        return CheckpointParts(self._rank_state, self._alike, self._kept)

    def _parts_states(self) -> dict[str, Any]:
        return {name: part.state() for name, part in self._parts.items()}

    def _changing_states(self) -> dict[str, Any]:
        if self._changing is None:
            return deepcopy(self._parts_states())
        return {name: part.state() for name, part in self._changing.items()}  # plain values, made anew

    def _rank_state(self, generators: Callable[[], Any] = generators_state) -> dict[str, Any]:
        # cloned: a view would be saved with all that it is a view of
        named = named_buffers(self._module) if any(one._buffers for one in self._layers) else ()
        buffers = {name: buffer.detach().clone() for name, buffer in named}
        own = {name: one.rank_state() for name, one in self._own.items()}
        drawn = {"generators": generators()} if self._draws else {}
        return {**drawn, "buffers": buffers, HELD: self._held, **own}

    def _rank_copy(self) -> dict[str, Any]:
        own = self._rank_state(self._generators.state)
        for name, one in self._own.items():
            if own[name] and not isinstance(one, PerWorkerState):  # whose states are copies
                own[name] = deepcopy(own[name])
        return own

    @property
    def _in_parts(self) -> bool:
        """Whether each rank writes and reads its part of what the optimiser remembers."""
        return self._holdings.in_shares or self._holdings.apart

    def _alike(self) -> Iterator[tuple[str, Savable]]:
        if not self._holdings.apart and self._scattered is None:
            yield WEIGHTS, weights_content(weights_of(self._module))
        states = self._parts_states()
        outer = states.pop(_OUTER)
        if outer and not self._in_parts:
            yield OUTER, StateContent(outer)
        yield SHARED, StateContent(states)
        yield ROSTER, self._progress.packed(self._recorder.step)

    def _kept(self) -> Iterator[tuple[str, Savable]]:
        holdings, writer = self._holdings, f"worker-{self._saver.rank}"
        if self._scattered is not None:
            yield weights_file(writer), self._scattered.content()
        if not holdings.apart:
            if self._divides:
                beside = sum(one.nbytes for one in weights_of(self._module).values())
                state = OptimizerState.from_plain(self._update.state())
                share = state.share(self._saver.rank, self._saver.size, beside).plain()
                yield from [(optimizer_file(writer), StateContent(share))] if share else []
            elif holdings.owned:
                yield optimizer_file(writer) if holdings.in_shares else OPTIMIZER, StateContent(self._update.state())
                if holdings.in_shares and (outer := self._parts[_OUTER].state()):
                    shares = OptimizerState.from_plain(outer).cut(holdings.shares)
                    yield optimizer_file(writer, OUTER), StateContent(shares.plain())
            return
        rules = ((OPTIMIZER, self._update), (OUTER, self._parts[_OUTER]))
        yield from part_files(self._module, holdings, self._saver.rank, ((file, rule.state()) for file, rule in rules))

    def _restore(self, manifest: Manifest, folder: Path) -> None:
        holdings, parts = self._holdings, {"update": self._update, **self._parts}
        if self._in_parts:
            for name, file in _RULES.items():
                blocks = holdings.shares if name == _OUTER and holdings.in_shares else holdings.blocks
                state = self._rule_state(folder, manifest, name, file).within(blocks)
                parts.pop(name).restore(state.plain())
        reads = holdings.leads or holdings.apart
        if self._scattered is not None:
            self._scattered.load(SavedWeights(folder, manifest))
        elif reads:
            load_weights(self._module, SavedWeights(folder, manifest), holdings.blocks)
        self._spread(parts, self._shared(manifest, folder) if reads else None)
        states = rank_states(folder, manifest, self._saver.rank, self._saver.size)
        saved, buffers = states[0].get("buffers", {}), dict(named_buffers(self._module))
        if not saved.keys() >= buffers.keys():  # the run had fewer workers, other parts of the network, or servers
            load_buffers(self._module, SavedWeights(folder, manifest))
        drawn = states[0]
        if self._holdings.draws_as != self._saver.rank:
            drawn = rank_states(folder, manifest, self._holdings.draws_as, self._saver.size)[0]
        self._restore_own(states, drawn)
        if manifest.world_size != self._saver.size:  # each stream was another rank's
            self._own[STREAMS].restore_rank(states_of_all(folder, manifest, STREAMS))

    def _spread(self, parts: Mapping[str, Stateful], shared: Mapping[str, Any] | None) -> None:
        """Give `parts` their states. shared: what all ranks hold alike; None: rank 0 has it, and sends it."""
        holdings, reads = self._holdings, shared is not None
        if shared is not None:
            apart = {name: taken_apart(shared[name]) for name in parts if name in shared}
        if holdings.leads:
            self._saver.bulletin.post("resumed-state", {name: plain for name, (plain, _) in apart.items()})
        elif not reads:
            posted = self._saver.bulletin.read("resumed-state", LEADER)
            apart = {name: (plain, blank(plain)) for name, plain in posted.items()}
        late = {name: tensors for name, (_, tensors) in apart.items() if tensors and not reads}
        for name, (plain, tensors) in apart.items():
            if name not in late:
                parts[name].restore(put_together(plain, tensors))

        def on_arrival() -> None:
            for name, tensors in late.items():
                parts[name].restore(put_together(apart[name][0], tensors))

        sent = [tensor for _, tensors in apart.values() for tensor in tensors if not holdings.apart]
        self.late = DeferredTensors(sent, on_arrival, shares=self._scattered is not None)

    def _shared(self, manifest: Manifest, folder: Path) -> dict[str, Any]:
        """Read what all ranks hold alike; of what servers wrote, as much as they know of it."""
        if SHARED in manifest.files:
            known = renamed(unpacked(read(folder, manifest, SHARED), folder / SHARED))
        else:
            known = self._progress.parts(read(folder, manifest, ROSTER))
        rules = {name: self._rule_state(folder, manifest, name, file).plain() for name, file in _RULES.items()}
        return {**rules, **known}

    def _rule_state(self, folder: Path, manifest: Manifest, name: str, file: str) -> OptimizerState:
        return OptimizerState.read(folder, manifest, file, averages=name == self._averages_by)

    def _restore_own(self, states: Sequence[dict[str, Any]], drawn: dict[str, Any]) -> None:
        """Take what was this rank's, and then that of ranks that are gone. drawn: with the generators."""
        saved, buffers = states[0].get("buffers", {}), dict(named_buffers(self._module))
        if saved.keys() >= buffers.keys():
            for name, buffer in buffers.items():
                buffer.copy_(saved[name])
        if "generators" in drawn:
            restore_generators(drawn["generators"])
        now = self._held
        for name, one in self._own.items():  # which are of what the rank held then
            one.restore_rank([state[name] for state in states if name in state and state.get(HELD, []) == now])


def _agreed(due: dict[str, Any]) -> Agreed:
    return Agreed(**due | {"not_finite": tuple(due["not_finite"])})
