"""Saving and resuming: all that decides the rest of a run, so that a resumed run equals an uninterrupted one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import torch
from safetensors.torch import save

from volary.errors import NotSaved
from volary.exchange._collectives import gather_plain
from volary.run.checkpoints import ROSTER, Checkpoints, Manifest, read
from volary.run.disk import TRY_AGAIN_AFTER_S
from volary.train.crossing import roster_state
from volary.train.first_state import Late
from volary.train.seeds import generators_state, restore_generators
from volary.train.served.shards import is_served
from volary.train.skeleton import blank, put_together, taken_apart
from volary.train.state_file import packed, unpacked
from volary.train.weights import SHARED, WEIGHTS, load_buffers, load_weights, saved_weights, weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from volary.session.spec import Checkpoint as Settings
    from volary.train.bulletin import Bulletin
    from volary.train.recorder import Recorder


class Stateful(Protocol):
    """Part of a run's state, in values that a weights-only reader accepts."""

    def state(self) -> dict[str, Any]:
        """Everything that decides how this goes on."""
        ...

    def restore(self, state: Any) -> None:
        """Go on from `state`."""
        ...


class Owing(Protocol):
    """What each rank owes to the sums, which ranks that are left out of a resumed run leave to the others."""

    def owed(self) -> dict[str, Any]:
        """In values that a weights-only reader accepts."""
        ...

    def owe(self, states: Sequence[dict[str, Any]]) -> None:
        """Owe what several ranks owed, instead of what is owed now."""
        ...


class Saver:
    """Writes and reads the checkpoints of one run, all ranks together.

    parts: what all ranks hold alike (update, feed, best, ways), saved by rank 0. Each rank adds its random generators,
    the network's buffers and what it owes, which differ between ranks. from_servers: reads what all
    hold alike from a checkpoint that servers wrote. late: of a resumed state, what rank 0 has yet to send to the others
    besides the parameters.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        bulletin: Bulletin,
        recorder: Recorder,
        module: nn.Module,
        parts: dict[str, Stateful],
        owing: Owing,
        settings: Settings,
        from_servers: Callable[[Path, Manifest], dict[str, Any]],
    ) -> None:
        self._checkpoints, self._bulletin, self._recorder = checkpoints, bulletin, recorder
        self._module, self._parts, self._owing, self._settings = module, parts, owing, settings
        self._from_servers = from_servers
        self.late = Late()
        self._newest = "none yet"
        self._saved = 0

    @property
    def newest(self) -> str:
        """The newest checkpoint of this life, in words."""
        return self._newest

    def save(self, metric: float | None, *, last: bool = False) -> None:
        """Write the checkpoint of this step. metric: of the evaluation at this step, if it was the best so far.

        A full disk, or any rank that cannot write, ends the save and not the training: it is told, and the older
        checkpoints stay. last: nothing will be saved after it, so it is tried again for some seconds; raises NotSaved
        then. Saving the same step twice writes once. A collective call: ranks agree among themselves, so that they can
        save without the run's driver, too.
        """
        step = self._recorder.step
        if step == self._saved:
            return
        self._recorder.saves += 1
        # steps that a checkpoint is beyond are never done again: they must be written down before it counts
        self._recorder.hand_over()
        self._recorder.enter("checkpoint")
        started = time.perf_counter()
        failure = self._write(step, metric)
        for wait_s in TRY_AGAIN_AFTER_S if last else ():
            if failure:
                self._tell(f"{failure}; it is the last one, and tried again in {wait_s:g} s")
                time.sleep(wait_s)
                failure = self._write(step, metric)
        if failure and last:
            raise NotSaved(
                f"the last checkpoint, of step {step}, could not be written: {failure}; kept: {self._newest}"
            )
        if failure:
            self._tell(f"{failure}; training goes on, older checkpoints stay")
            return
        self._newest, self._saved = f"step {step}", step
        if self._bulletin.rank == 0:
            path = str(self._checkpoints.path(step))
            self._recorder.event("checkpoint", step=step, path=path, seconds=time.perf_counter() - started)
            self._checkpoints.prune(
                self._settings.keep_last, self._checkpoints.newest_measured() if self._settings.keep_best else None
            )

    def resume(self) -> Manifest | None:
        """Restore the newest whole checkpoint, if the run has one; the same on every rank. Says which were damaged.

        Raises RunError if all are. Rank 0 alone reads what all hold alike; parameters, and what is `late`, come to the
        others when training starts.
        """
        if self._bulletin.rank == 0:
            manifest, warnings = self._checkpoints.take_up()
            for text in warnings:
                self._recorder.event("warning", text=text)
            self._bulletin.post("resume", None if manifest is None else manifest.step)
        step = self._bulletin.read("resume", 0)
        if step is None:
            return None
        manifest = self._checkpoints.manifest(step)
        self._restore(manifest)
        self._recorder.go_on_from(step)
        self._newest, self._saved = f"step {step}", step
        return manifest

    def _tell(self, reason: str) -> None:
        if self._bulletin.rank == 0:
            self._recorder.event("checkpoint_failed", reason=reason)
            self._recorder.hand_over()

    def _write(self, step: int, metric: float | None) -> str:
        """Write and commit it; why that failed, the same on all ranks, or nothing: then nothing is left of it."""
        failure = self._tried(step, metric)
        if failure and self._bulletin.rank == 0:
            self._checkpoints.give_up(step)
        return failure

    def _tried(self, step: int, metric: float | None) -> str:
        checkpoints = self._checkpoints
        if failure := self._failure_of_first(lambda: checkpoints.begin(step)):
            return failure
        sums: dict[str, str] = {}

        def write() -> None:
            for name, data in self._files(step):
                sums[name] = checkpoints.write(step, name, data)

        everybody = self._gathered((_failure(write), sums))
        for other, (failure, theirs) in enumerate(everybody):
            if failure:
                return f"rank {other}: {failure}" if other else failure
            sums |= theirs
        return self._failure_of_first(lambda: checkpoints.commit(step, len(everybody), sums, metric))

    def _files(self, step: int) -> Iterator[tuple[str, bytes]]:
        """What this rank writes, by name."""
        rank = self._bulletin.rank
        yield _own(rank), packed(self._own_state())
        if rank == 0:
            yield WEIGHTS, save(_apart(weights_of(self._module)))
            shared = {name: part.state() for name, part in self._parts.items()}
            yield SHARED, packed(shared)
            yield ROSTER, msgspec.json.encode(roster_state(step, shared))

    def _failure_of_first(self, work: Callable[[], object]) -> str:
        """Rank 0 does it; all ranks learn why it failed, if it did."""
        failure: str = self._gathered(_failure(work) if self._bulletin.rank == 0 else "")[0]
        return failure

    def _gathered(self, value: Any) -> list[Any]:
        """What all ranks say, by rank; meanwhile the others are those that are late."""
        with self._recorder.waiting():
            return gather_plain(value, self._bulletin.world_size)

    def _own_state(self) -> dict[str, Any]:
        # cloned: a view would be saved with all that it is a view of
        buffers = {name: buffer.detach().clone() for name, buffer in self._module.named_buffers()}
        return {"generators": generators_state(), "buffers": buffers, "owed": self._owing.owed()}

    def _restore(self, manifest: Manifest) -> None:
        path, rank = self._checkpoints.path(manifest.step), self._bulletin.rank
        if rank == 0:
            load_weights(self._module, saved_weights(path, manifest))
            served = is_served(manifest)
            shared = self._from_servers(path, manifest) if served else _state(path, manifest, SHARED)
            apart = {name: taken_apart(shared[name]) for name in self._parts if name in shared}
            self._bulletin.post("resumed-state", {name: plain for name, (plain, _) in apart.items()})
        else:
            posted = self._bulletin.read("resumed-state", 0)
            apart = {name: (plain, blank(plain)) for name, plain in posted.items()}
        late = {name: tensors for name, (_, tensors) in apart.items() if tensors and rank != 0}
        for name, (plain, tensors) in apart.items():
            if name not in late:
                self._parts[name].restore(put_together(plain, tensors))

        def come() -> None:
            for name, tensors in late.items():
                self._parts[name].restore(put_together(apart[name][0], tensors))

        self.late = Late([tensor for _, tensors in apart.values() for tensor in tensors], come)
        self._restore_own(manifest)

    def _restore_own(self, manifest: Manifest) -> None:
        path, rank = self._checkpoints.path(manifest.step), self._bulletin.rank
        if rank >= manifest.world_size or is_served(manifest):  # the run had fewer workers, or servers
            load_buffers(self._module, saved_weights(path, manifest))
            return
        state = _state(path, manifest, _own(rank))
        for name, buffer in self._module.named_buffers():
            buffer.copy_(state["buffers"][name])
        restore_generators(state["generators"])
        gone = range(rank + self._bulletin.world_size, manifest.world_size, self._bulletin.world_size)
        others = (_state(path, manifest, _own(other))["owed"] for other in gone)
        self._owing.owe([state["owed"], *others])


def _failure(work: Callable[[], object]) -> str:
    """Do it; what the disk did not let be done, or nothing."""
    try:
        work()
    except OSError as error:
        return str(error)
    return ""


def _own(rank: int) -> str:
    """The file of what is a rank's own."""
    return f"rank-{rank}.pt"


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same values, each in memory of its own, which the format wants; copied only where it is not so."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        alone = storage.nbytes() == tensor.nbytes and storage.data_ptr() not in seen
        seen.add(storage.data_ptr())
        own = tensor if alone and tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)
        apart[name] = own
    return apart


def _state(path: Path, manifest: Manifest, name: str) -> dict[str, Any]:
    state: dict[str, Any] = unpacked(read(path, manifest, name), path / name)
    return state
