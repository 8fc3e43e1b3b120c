"""Saving and resuming: all that decides the rest of a run, so that a resumed run equals an uninterrupted one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from volary.comm.groups.blocking import gather_plain
from volary.errors import NotSaved
from volary.naming import named_buffers
from volary.run.checkpoints import ROSTER, SHARED, Manifest, read
from volary.run.disk import TRY_AGAIN_AFTER_S
from volary.train.agreement.first_state import DeferredTensors
from volary.train.state.committing import Committing
from volary.train.state.optimizer_state import OPTIMIZER, OptimizerState
from volary.train.state.rank_state import rank_file, rank_states
from volary.train.state.seeds import generators_state, restore_generators
from volary.train.state.skeleton import blank, put_together, taken_apart
from volary.train.state.state_file import state_content, unpacked
from volary.train.state.weights import WEIGHTS, SavedWeights, load_buffers, load_weights, weights_content, weights_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from volary.comm.groups.group import Group
    from volary.run.content import Content
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts
    from volary.train.state.progress import Progress
    from volary.train.state.stateful import RankState, Stateful


class CheckpointWriter:
    """See `volary.train.coordinator.Saver`. Of the ranks of `group`.

    drafts: where they are written. update: of all parameters; rank 0 writes these, what the optimiser remembers,
    and `parts`, which all ranks hold alike. Each rank adds its random generators, the network's buffers, and `own`.
    """

    def __init__(
        self,
        drafts: Drafts,
        group: Group,
        recorder: Recorder,
        module: nn.Module,
        update: Stateful,
        parts: Mapping[str, Stateful],
        own: Mapping[str, RankState],
        progress: Progress,
    ) -> None:
        self._drafts, self._group, self._recorder = drafts, group, recorder
        self._module, self._update, self._parts, self._own = module, update, parts, own
        self._progress = progress
        self._committing = Committing(drafts, recorder, group.rank, lambda value: gather_plain(value, group))
        self.late = DeferredTensors()
        self._newest = "none yet"
        self._saved = 0

    @property
    def newest(self) -> str:
        return self._newest

    def save(self, metric: float | None, *, last: bool = False) -> None:
        step = self._recorder.step
        if step == self._saved and not (last and self._committing.settle()):
            return
        self._recorder.saves += 1
        # steps that a checkpoint is beyond are never done again: they must be written down before it counts
        self._recorder.hand_over()
        self._recorder.enter("checkpoint")
        failure = self._committing.write(step, lambda: self._files(step), metric, last=last)
        for wait_s in TRY_AGAIN_AFTER_S if last else ():
            if failure:
                self._tell(f"{failure}; it is the last one, and tried again in {wait_s:g} s")
                time.sleep(wait_s)
                failure = self._committing.write(step, lambda: self._files(step), metric, last=last)
        if failure and last:
            kept = self._committing.newest()
            raise NotSaved(
                f"the last checkpoint, of step {step}, could not be written: {failure}; kept: "
                f"{'none yet' if kept is None else f'step {kept}'}"
            )
        if failure:
            self._tell(f"{failure}; training goes on, older checkpoints stay")
            return
        self._newest, self._saved = f"step {step}", step

    def resume(self) -> Manifest | None:
        if self._group.rank == 0:
            newest, warnings = self._drafts.take_up()
            for text in warnings:
                self._recorder.event("warning", text=text)
            self._group.bulletin.post("resume", newest)
        step = self._group.bulletin.read("resume", 0)
        if step is None:
            return None
        manifest = self._drafts.have(step, whole=self._group.rank == 0)
        self._restore(manifest)
        self._recorder.go_on_from(step)
        self._newest, self._saved = f"step {step}", step
        return manifest

    def _tell(self, reason: str) -> None:
        if self._group.rank == 0:
            self._recorder.event("checkpoint_failed", reason=reason)
            self._recorder.hand_over()

    def _files(self, step: int) -> Iterator[tuple[str, Content]]:
        """What this rank writes, by name."""
        rank = self._group.rank
        yield rank_file(rank), state_content(self._own_state())
        if rank == 0:
            yield WEIGHTS, weights_content(weights_of(self._module))
            yield OPTIMIZER, state_content(self._update.state())
            yield SHARED, state_content({name: part.state() for name, part in self._parts.items()})
            yield ROSTER, self._progress.packed(step)

    def _own_state(self) -> dict[str, Any]:
        # cloned: a view would be saved with all that it is a view of
        buffers = {name: buffer.detach().clone() for name, buffer in named_buffers(self._module)}
        own = {name: one.rank_state() for name, one in self._own.items()}
        return {"generators": generators_state(), "buffers": buffers, **own}

    def _restore(self, manifest: Manifest) -> None:
        rank, parts = self._group.rank, {"update": self._update, **self._parts}
        if rank == 0:
            load_weights(self._module, SavedWeights(self._drafts.checkpoints.path(manifest.step), manifest))
            shared = self._shared(manifest)
            apart = {name: taken_apart(shared[name]) for name in parts if name in shared}
            self._group.bulletin.post("resumed-state", {name: plain for name, (plain, _) in apart.items()})
        else:
            posted = self._group.bulletin.read("resumed-state", 0)
            apart = {name: (plain, blank(plain)) for name, plain in posted.items()}
        late = {name: tensors for name, (_, tensors) in apart.items() if tensors and rank != 0}
        for name, (plain, tensors) in apart.items():
            if name not in late:
                parts[name].restore(put_together(plain, tensors))

        def come() -> None:
            for name, tensors in late.items():
                parts[name].restore(put_together(apart[name][0], tensors))

        self.late = DeferredTensors([tensor for _, tensors in apart.values() for tensor in tensors], come)
        self._restore_own(manifest)

    def _shared(self, manifest: Manifest) -> dict[str, Any]:
        """What all ranks hold alike; of what servers wrote, as much as they know of it."""
        path = self._drafts.checkpoints.path(manifest.step)
        if SHARED in manifest.files:
            known = unpacked(read(path, manifest, SHARED), path / SHARED)
        else:
            known = self._progress.parts(read(path, manifest, ROSTER))
        return {"update": OptimizerState.read(path, manifest).plain(), **known}

    def _restore_own(self, manifest: Manifest) -> None:
        path, rank = self._drafts.checkpoints.path(manifest.step), self._group.rank
        states = rank_states(path, manifest, rank, self._group.size)
        if "buffers" in states[0]:
            for name, buffer in named_buffers(self._module):
                buffer.copy_(states[0]["buffers"][name])
        else:  # the run had fewer workers, or servers
            load_buffers(self._module, SavedWeights(path, manifest))
        if "generators" in states[0]:
            restore_generators(states[0]["generators"])
        for name, one in self._own.items():
            one.restore_rank([state[name] for state in states if name in state])
