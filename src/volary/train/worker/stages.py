"""A session in lock step, stage by stage: what is trained is fixed in each; see `volary.train.freezing`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Protocol

import msgspec

from volary.comm.groups.group import cut
from volary.comm.groups.leading import from_leader
from volary.data.datasets.stream import Stream
from volary.run.checkpoints import ROSTER, SHARED, read
from volary.server.roster.state import RosterState
from volary.session.changing import planned_steps
from volary.sharding.epochs import Epochs
from volary.train.lockstep.lockstep import Lockstep
from volary.train.loop import Training, train
from volary.train.saving.saver import GroupSaver
from volary.train.state.state_file import unpacked

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.run.checkpoints import Manifest
    from volary.train.coordinator import Outcome
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.recovery.kept_state import KeptState
    from volary.train.state.drafts import Drafts


class Watching(Protocol):
    """Watches a run as it goes from stage to stage."""

    def begun(self, model: Model, lockstep: Lockstep, resumed: Manifest | None) -> None:
        """The first stage begins, with what a checkpoint has brought, if there is one."""
        ...

    def under_way(self, *, last: bool) -> None:
        """All ranks are exchanging. last: until the end of the run."""
        ...


def train_stages(
    models: Callable[[int], Model],
    group: Group,
    drafts: Drafts,
    recorder: Recorder,
    put_together: Callable[[Model, Group], Training[Lockstep]],
    watching: Watching | None = None,
    kept: KeptState | None = None,
    keep: Callable[[Model, KeptState], None] = lambda *_: None,
) -> Outcome:
    """Train from what was `kept`, the newest checkpoint, or the beginning, to the end, as one rank of `group`.

    models: makes the network of a stage, 0 the first of this attempt. put_together: what it is trained with; a
    collective call. kept: by each rank of a group before. keep: told the network, and what is kept of it, if training
    breaks. Raises what `train` raises.
    """
    for number in count():
        own = group.within(f"stage {number}") if number else group
        model = models(number)
        if kept is None:
            _thaw(model, own, drafts, recorder)
        training = put_together(model, own)
        lockstep = training.coordinator
        if kept is None:
            recorder.starting("looking for a checkpoint")
            resumed = lockstep.saver.resume()
        else:
            lockstep.take_over(kept)
            resumed, kept = None, None
        if watching is not None and not number:
            watching.begun(model, lockstep, resumed)
        recorder.starting("doing the first step")
        try:
            outcome = _trained(training, watching)
        except Exception:
            if (left := lockstep.kept()) is not None:
                lockstep.rank.network.update.clear()  # sums of a step that is done again
                keep(model, left)
            raise
        if not lockstep.thawed:
            return outcome
    raise AssertionError("a run ends")


def _trained(training: Training[Lockstep], watching: Watching | None) -> Outcome:
    lockstep = training.coordinator
    try:
        lockstep.rank.replica.start(lockstep.saver.late)
        if watching is not None:
            watching.under_way(last=all(step <= lockstep.rank.data.feed.step for step in lockstep.rank.data.thaws_at))
        return train(training)
    except BaseException:
        cut()  # the exchange's thread may wait for ranks that will never come
        raise
    finally:
        training.replica.close()
        training.recorder.retire(training.replica.traffic)
        lockstep.saver.finish()


def _thaw(model: Model, group: Group, drafts: Drafts, recorder: Recorder) -> None:
    """Let the network train what is thawed by now. A collective call."""
    if not (model.frozen.rules or model.frozen.still):
        return
    session, samples = model.session, model.samples
    epochs = None if isinstance(samples, Stream) else Epochs(len(samples), session.data.batch_size)
    step = _steps_done(group.within("steps done"), drafts, recorder, epochs)
    thawed = model.frozen.thaw(model.module, step, epochs.steps if epochs else planned_steps(session, 0))
    if recorder.leads and thawed:
        recorder.event("thawed", parameters=thawed)


def _steps_done(group: Group, drafts: Drafts, recorder: Recorder, epochs: Epochs | None) -> int:
    """How many steps of the data are in the newest checkpoint; 0 without one. A collective call."""
    found = GroupSaver(drafts, group, recorder).find(whole=False)
    if found is None:
        return 0
    manifest, folder = found

    def steps() -> int:
        if SHARED in manifest.files:
            state = unpacked(read(folder, manifest, SHARED), folder / SHARED)
            return int(state.get("feed", {}).get("step", 0))
        known = msgspec.json.decode(read(folder, manifest, ROSTER), type=RosterState)
        return epochs.steps_of(known.samples) if epochs else 0

    return int(from_leader(group.bulletin, "steps", steps))
