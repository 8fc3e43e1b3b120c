"""A worker's own state as of any contribution that a checkpoint may be of: residuals, its optimiser.

Servers keep a state as of an update, while workers are ahead of it by what is in no update yet. A checkpoint of that
state needs what each worker had after its newest contribution in it: a resumed run computes again what came later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from volary.run.checkpoints import Checkpoints
from volary.server.protocol.from_members import Saved
from volary.train.member.remote_directory import bring
from volary.train.state.rank_state import RESIDUALS, is_of_rank, rank_states

if TYPE_CHECKING:
    from volary.exchange._base import Keeper
    from volary.train.member.process import Membership
    from volary.train.state.stateful import RankState

_JOIN_S = 60.0  # for a file that is being written
# a state to the draft of a step's checkpoint, and as the first of all workers what they have alike: checksums
Write = Callable[[int, dict[str, Any], bool], dict[str, str]]
Start = Callable[[Callable[[], None]], None]


class HasState(Protocol):
    """The part of an encoder of pushes that a checkpoint keeps: its residuals."""

    def state(self) -> dict[str, Any]:
        """Copies of the residuals, while nothing is encoded."""
        ...

    def take_back(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """A contribution is in no update: add what it took from the residuals, of the states before and after it."""
        ...


class WorkerState:
    """All that a worker has of its own: its keeper's residuals, and more, by its name in the file of a rank."""

    def __init__(self, keeper: Keeper, own: Mapping[str, RankState]) -> None:
        self._keeper, self._own = keeper, own

    def state(self) -> dict[str, Any]:
        """See `HasState`; as in the file of a rank."""
        return {RESIDUALS: self._keeper.state(), **{name: one.rank_state() for name, one in self._own.items()}}

    def take_back(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """See `HasState`. What else was contributed comes again, from whoever learns from its samples."""
        less = {name: {kind: -one for kind, one in kinds.items()} for name, kinds in after[RESIDUALS].items()}
        self._keeper.restore([self._keeper.state(), deepcopy(before[RESIDUALS]), less])

    def restore(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Go on from this worker's, and from those of workers that the run has no more."""
        self._keeper.restore([state[RESIDUALS] for state in states if RESIDUALS in state])
        for name, one in self._own.items():
            one.restore_rank([state[name] for state in states if name in state])


def resume(own: WorkerState, member: Membership, step: int | None, workers: int) -> None:
    """Let a worker go on from the checkpoint of `step`; None: the run begins. workers: that it begins with."""
    rank, checkpoints = member.place.rank, Checkpoints(member.directory.checkpoints)
    if step is not None and rank < workers:  # whoever joins later has left out nothing yet
        manifest = bring(member.remote, checkpoints, step, is_of_rank)
        own.restore(rank_states(checkpoints.path(step), manifest, rank, workers))


class Residuals:
    """Keeps the residuals of `encoding`, by clock. kept: whether any state but the last is saved; drops: whether
    contributions that were encoded may be in no update. Without either nothing is copied on the way.

    write: raises OSError. say: tells the roster of what is written. start: lets a file be written beside the work.
    Methods may be called by any thread.
    """

    def __init__(
        self,
        encoding: HasState,
        write: Write,
        say: Callable[[Saved], None],
        start: Start,
        *,
        kept: bool,
        drops: bool = False,
    ) -> None:
        self._encoding, self._write, self._say, self._start, self._copies = encoding, write, say, start, kept or drops
        self._lock = threading.Lock()
        self._newest, self._quiet = -1, True  # the contribution that was encoded last, and whether that is done
        self._after: dict[int, dict[str, Any]] = {}  # by clock; of the newest it is what `encoding` has
        self._dropped: set[int] = set()  # and have not been taken back yet, if they were encoded
        self._settled = -1
        self._snapshots: dict[int, int] = {}  # by name, the newest contribution in it
        # by name of a snapshot that is to be saved, its step, and `first`
        self._waiting: dict[int, tuple[int, bool]] = {}

    def begin(self, clock: int) -> None:
        """The contribution `clock` is encoded next; all before are held."""
        with self._lock:
            self._quiet = True
            self._take_back()
            if self._copies:
                self._after[self._newest] = self._encoding.state()
            self._save()
            self._newest, self._quiet = clock, False
            self._forget()

    def held(self, clock: int) -> None:
        """Note that all servers hold contribution `clock`: until the next one residuals do not change."""
        with self._lock:
            if clock == self._newest:
                self._quiet = True
                self._save()

    def drop(self, clock: int) -> None:
        """Note that contribution `clock` is in no update."""
        with self._lock:
            if self._copies:
                self._dropped.add(clock)  # which may be encoded yet

    def settle(self, clock: int) -> None:
        """No state that is kept from now on is older than this worker's contribution `clock`."""
        with self._lock:
            self._settled = max(self._settled, clock)
            self._forget()

    def keep(self, snapshot: int, clock: int) -> None:
        """A state is kept whose newest contribution of this worker is `clock`."""
        with self._lock:
            self._snapshots[snapshot] = clock

    def save(self, snapshot: int, step: int, *, first: bool = False) -> None:
        """Write what belongs to it to the draft of checkpoint `step`, now or as soon as it is there."""
        with self._lock:
            self._waiting[snapshot] = step, first
            self._save()

    def release(self, snapshot: int) -> None:
        """Forget a snapshot that nobody will save any more."""
        with self._lock:
            self._snapshots.pop(snapshot, None)
            self._waiting.pop(snapshot, None)
            self._forget()

    def _take_back(self) -> None:
        """Let residuals be as if nothing had been encoded of what was dropped."""
        for clock in sorted(self._dropped & {*self._after, self._newest}, reverse=True):
            after = self._after.pop(clock, None) or self._encoding.state()
            self._encoding.take_back(self._after[max(one for one in self._after if one < clock)], after)
        self._dropped = {clock for clock in self._dropped if clock > self._newest}

    def _as_of(self, clock: int) -> int:
        """The newest contribution up to `clock` that was encoded: others, as empty or dropped ones, changed nothing."""
        encoded = {*self._after, self._newest} - self._dropped
        return max((one for one in encoded if one <= clock), default=-1)

    def _save(self) -> None:
        for snapshot, (step, first) in list(self._waiting.items()):
            clock = self._as_of(self._snapshots[snapshot])
            if clock == self._newest and not self._quiet:
                continue  # its last values are on their way
            del self._waiting[snapshot]
            state = self._after[clock] if clock in self._after else self._encoding.state()
            self._start(partial(self._written, snapshot, step, state, first))

    def _written(self, snapshot: int, step: int, state: dict[str, Any], first: bool) -> None:
        try:
            saved = Saved(snapshot, self._write(step, state, first))
        except OSError as problem:
            saved = Saved(snapshot, {}, str(problem))
        self._say(saved)

    def _forget(self) -> None:
        oldest = self._as_of(self._settled)
        needed = {self._as_of(clock) for clock in self._snapshots.values()}
        self._after = {clock: one for clock, one in self._after.items() if clock >= oldest or clock in needed}


class Writers:
    """Threads that each write a file, and end with it."""

    def __init__(self) -> None:
        self._all: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        self._all = [writer for writer in self._all if writer.is_alive()]
        self._all.append(threading.Thread(target=work, name="residuals"))
        self._all[-1].start()

    def close(self) -> None:
        """Let what is being written come to its end."""
        for writer in self._all:
            writer.join(_JOIN_S)
