"""The parts of a session's run in a checkpoint: all that decides its rest, so that it continues bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volary.naming import named_buffers
from volary.run.checkpoints import ROSTER, SHARED, Manifest, read
from volary.sharding.groups import LEADER
from volary.train.agreement.first_state import DeferredTensors
from volary.train.state.optimizer_state import OPTIMIZER, OptimizerState, optimizer_file
from volary.train.state.rank_state import OPTIMIZER as RANK_OPTIMIZER
from volary.train.state.rank_state import PRECISION, PerWorkerState, rank_states
from volary.train.state.seeds import generators_state, restore_generators
from volary.train.state.skeleton import blank, put_together, taken_apart
from volary.train.state.state_file import state_content, unpacked
from volary.train.state.stateful import CheckpointParts
from volary.train.state.weights import WEIGHTS, SavedWeights, load_buffers, load_weights, weights_content, weights_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from volary.partition._base import Part
    from volary.run.content import Content
    from volary.train.model import TrainedNetwork
    from volary.train.recording.recorder import Recorder
    from volary.train.state.progress import Progress
    from volary.train.state.stateful import RankState, Stateful
    from volary.train.worker.saver import GroupSaver


class SessionParts:
    """See `volary.train.coordinator.Saver`. Of workers that keep step; `saver` writes them.

    part: what a rank runs. network: with what updates what the rank keeps; updates_locally: each rank has an optimiser
    and a loss scale of its own. Rank 0 writes the parameters and `parts`, which all ranks hold alike; each rank its
    random generators, the network's buffers, `own`, and what the optimiser remembers of what it owns.
    """

    def __init__(
        self,
        saver: GroupSaver,
        recorder: Recorder,
        part: Part,
        network: TrainedNetwork,
        parts: Mapping[str, Stateful],
        own: Mapping[str, RankState],
        progress: Progress,
        *,
        updates_locally: bool,
    ) -> None:
        self._saver, self._recorder = saver, recorder
        self._module, self._holdings = part.module, part.holdings
        self._update: Stateful = network.update
        self._parts, self._own = {**parts, PRECISION: network.precision}, dict(own)
        if updates_locally:
            self._update = self._own[RANK_OPTIMIZER] = PerWorkerState(RANK_OPTIMIZER, network.update)
            self._parts[PRECISION] = self._own[PRECISION] = PerWorkerState(PRECISION, network.precision)
        self._progress = progress
        self.late = DeferredTensors()

    @property
    def newest(self) -> str:
        return f"step {self._saver.saved}" if self._saver.saved else "none yet"

    def save(self, metric: float | None, *, last: bool = False) -> None:
        if self._recorder.step == self._saver.saved and not (last and self._saver.settle()):
            return
        self._recorder.begin_save()
        self._saver.save(CheckpointParts(self._rank_state, self._alike, self._kept), metric, last=last)

    def resume(self) -> Manifest | None:
        found = self._saver.find(whole=self._holdings.in_shares)
        if found is None:
            return None
        manifest, folder = found
        self._restore(manifest, folder)
        self._recorder.go_on_from(manifest.step)
        return manifest

    def _rank_state(self) -> dict[str, Any]:
        # cloned: a view would be saved with all that it is a view of
        buffers = {name: buffer.detach().clone() for name, buffer in named_buffers(self._module)}
        own = {name: one.rank_state() for name, one in self._own.items()}
        return {"generators": generators_state(), "buffers": buffers, **own}

    def _alike(self) -> Iterator[tuple[str, Content]]:
        yield WEIGHTS, weights_content(weights_of(self._module))
        yield SHARED, state_content({name: part.state() for name, part in self._parts.items()})
        yield ROSTER, self._progress.packed(self._recorder.step)

    def _kept(self) -> Iterator[tuple[str, Content]]:
        if self._holdings.owned:
            name = optimizer_file(f"worker-{self._saver.rank}") if self._holdings.in_shares else OPTIMIZER
            yield name, state_content(self._update.state())

    def _restore(self, manifest: Manifest, folder: Path) -> None:
        first, parts = self._holdings.leads, {"update": self._update, **self._parts}
        if self._holdings.in_shares:
            parts.pop("update").restore(OptimizerState.read(folder, manifest).plain())
        if first:
            load_weights(self._module, SavedWeights(folder, manifest))
            shared = self._shared(manifest, folder)
            apart = {name: taken_apart(shared[name]) for name in parts if name in shared}
            self._saver.bulletin.post("resumed-state", {name: plain for name, (plain, _) in apart.items()})
        else:
            posted = self._saver.bulletin.read("resumed-state", LEADER)
            apart = {name: (plain, blank(plain)) for name, plain in posted.items()}
        late = {name: tensors for name, (_, tensors) in apart.items() if tensors and not first}
        for name, (plain, tensors) in apart.items():
            if name not in late:
                parts[name].restore(put_together(plain, tensors))

        def come() -> None:
            for name, tensors in late.items():
                parts[name].restore(put_together(apart[name][0], tensors))

        self.late = DeferredTensors([tensor for _, tensors in apart.values() for tensor in tensors], come)
        self._restore_own(manifest, folder)

    def _shared(self, manifest: Manifest, folder: Path) -> dict[str, Any]:
        """What all ranks hold alike; of what servers wrote, as much as they know of it."""
        if SHARED in manifest.files:
            known = unpacked(read(folder, manifest, SHARED), folder / SHARED)
        else:
            known = self._progress.parts(read(folder, manifest, ROSTER))
        return {"update": OptimizerState.read(folder, manifest).plain(), **known}

    def _restore_own(self, manifest: Manifest, folder: Path) -> None:
        states = rank_states(folder, manifest, self._saver.rank, self._saver.size)
        if "buffers" in states[0]:
            for name, buffer in named_buffers(self._module):
                buffer.copy_(states[0]["buffers"][name])
        else:  # the run had fewer workers, or servers
            load_buffers(self._module, SavedWeights(folder, manifest))
        if "generators" in states[0]:
            restore_generators(states[0]["generators"])
        for name, one in self._own.items():
            one.restore_rank([state[name] for state in states if name in state])
