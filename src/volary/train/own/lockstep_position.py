"""The position of workers that keep step in a user's own data: of each batch of all, this worker's share is next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from volary.comm.groups.blocking import gather_plain
from volary.data.batching.structures import moved
from volary.data.sharing.own_sharding import SharedAlready
from volary.errors import BadInput
from volary.train.state.seeds import generators_state, restore_generators

if TYPE_CHECKING:
    import torch

    from volary.comm.groups.group import Group
    from volary.data.sharing.among import Batches, BatchShare, SharedData
    from volary.train.own.model.share import Share
    from volary.train.own.recovering.divided_again import DividedAgain
    from volary.train.recording.recorder import Recorder

_FOREIGN = (
    "a worker without samples of a batch was given another's, as a {} cannot be without rows: they count nothing in "
    "gradients and worker.mean, but in what the loop counts itself; accepted: drop_last=True, or batches of tensors"
)


class FedLoop(Protocol):
    """A loop that is given batches."""

    def follow(self, generators: Any) -> int:
        """A batch is handed out; the number of the loop's iteration.

        generators: the random generators before it was read, where workers may be lost.
        """
        ...

    def change(self, asked: LockstepPosition) -> None:
        """A batch is about to be handed out, after which those of the next step are fixed."""
        ...


class LockstepPosition:
    """See `volary.train.own.loop_feed.FeedPosition`.

    loop: is told of each batch. again: divides the rest of an epoch, where workers may be lost and others come.
    """

    def __init__(
        self,
        shared: SharedData,
        share: Share,
        recorder: Recorder,
        device: torch.device,
        loop: FedLoop,
        again: DividedAgain | None = None,
    ) -> None:
        self.loader, self.steps = shared.loader, shared.steps
        self._shared, self._share, self._recorder, self._device = shared, share, recorder, device
        self._loop, self._again = loop, again
        self._epoch = 0  # of the next `for`
        self._under_way: FeedPlace | None = None
        self._resumed: FeedPlace | None = None
        self._generators_then: Any = None  # of the whole process, where it is resumed
        self._generators_before: Any = None  # the newest batch was read; None: nobody asks
        self._warned = False  # that batches have another worker's samples

    def _generators(self) -> list[torch.Generator]:
        """The user's own generators, which draw samples."""
        named = [getattr(one, "generator", None) for one in (self.loader, getattr(self.loader, "sampler", None))]
        return list({id(one): one for one in named if one is not None}.values())

    def left_out(self, loops: int) -> int:
        return 0

    def state(self, *, within: bool) -> dict[str, Any]:
        place = self._under_way or FeedPlace(self._epoch, 0, None, _states(self._generators()))
        if self._again is not None:
            place = replace(place, given=self._again.place(place.given, 0)[0])
        return dict(vars(place))

    def resume(self, state: Mapping[str, Any], generators: Any, workers: int) -> None:
        place = FeedPlace(**state)
        if place.given and isinstance(self._shared, SharedAlready) and workers != self._shared.workers:
            raise BadInput(
                f"the loader's DistributedSampler divides an epoch among {self._shared.workers} workers, and the "
                f"checkpoint was written among the batches of one that was divided among {workers}; accepted: "
                f"{workers} workers, or a loader without a DistributedSampler"
            )
        self._epoch = place.epoch
        if place.began is None:
            _restore(self._generators(), place.own)
        else:
            self._resumed, self._generators_then = place, generators

    def batches(self) -> Iterator[Any]:
        try:
            yield from self._epoch_of_all()
        finally:
            self._under_way = None

    def _epoch_of_all(self) -> Iterator[Any]:
        epoch, resumed = self._epoch, self._resumed
        self._epoch += 1  # now: an epoch that is left with `break` is over
        self._resumed = None
        self._recorder.enter_step("data")
        if resumed is not None:
            restore_generators(resumed.began)
            _restore(self._generators(), resumed.own)
        self._under_way = FeedPlace(epoch, 0, generators_state(), _states(self._generators()))
        if self._again is not None:
            self._shared = self._again.begin_epoch(self._shared)
        given = self._under_way.given = 0 if resumed is None else resumed.given
        new = self._again is not None and self._generators_then is None  # nobody has read its batches before
        parts = self._shared.epoch(epoch, given if new else 0, self._note_generators)
        if resumed is not None and not new:
            for _ in range(given):
                next(parts)
            if self._generators_then is not None:
                restore_generators(self._generators_then)
        while True:
            parts = self._once_more(parts, self._under_way)
            self._note_generators()
            part = next(parts, None)  # the first one draws the order before
            if part is None:
                return
            if self._changed():
                continue
            yield self._taken(part, self._under_way)
            if not part.ends_epoch:
                self._recorder.enter_step("data")

    def _changed(self) -> bool:
        """Whether the workers are others than those that a part was made for: it is made anew then."""
        if self._again is None:
            return False
        if not self._again.due():  # else a worker was lost as all agreed on the order
            self._loop.change(self)
            if self._again.due():
                restore_generators(self._generators_before)
        return self._again.due()

    def _note_generators(self) -> None:
        """Note the generators that the next batch is read with, as it may be read again."""
        if self._again is not None:
            self._generators_before = generators_state()

    def _taken(self, part: BatchShare, place: FeedPlace) -> Any:
        """The batch of the `part` that is next, on the device."""
        share, seen = self._share, self._share.seen
        place.given += 1
        share.take(part.samples, part.total, ends_epoch=part.ends_epoch)
        done = place.given / self.steps if self.steps else 0.0
        share.epoch = place.epoch + (1.0 if part.ends_epoch else done)
        iteration = self._loop.follow(self._generators_before)
        if self._again is not None:
            self._again.note(iteration, place.given - 1, seen)
        if part.foreign and not self._warned:
            self._warned = True
            self._recorder.event("warning", text=_FOREIGN.format(type(part.batch).__name__))
        batch = moved(part.batch, self._device)
        self._recorder.enter("forward")
        return batch

    def _once_more(self, parts: Iterator[BatchShare], place: FeedPlace) -> Iterator[BatchShare]:
        """The parts of the epoch from where it stands, divided anew if workers were lost: or those that there are."""
        again = self._again
        if again is None or not again.due():
            return parts
        now = generators_state()

        def drawn() -> None:
            restore_generators(now)
            again.take_back()
            self._note_generators()

        restore_generators(place.began)
        _restore(self._generators(), place.own)
        place.given, self._share.seen = again.place(place.given, self._share.seen)
        self._shared = again.again()
        return self._shared.epoch(place.epoch, place.given, drawn)


@dataclass
class FeedPlace:
    """The place of a `for` over a feed. given: batches of `epoch` that were given out. began: the random generators
    when it began; None: it has not begun. own: the loader's and the sampler's own generators then.
    """

    epoch: int
    given: int
    began: Any
    own: list[Any]


def _states(generators: list[torch.Generator]) -> list[Any]:
    return [one.get_state() for one in generators]


def _restore(generators: list[torch.Generator], states: list[Any]) -> None:
    for one, state in zip(generators, states, strict=True):
        one.set_state(state)


def of_first(batches: Batches, together: Callable[[str, Callable[[Group], Batches]], Batches]) -> Batches:
    """Rank 0's batches. A collective call: digests are compared, and only what differs travels.

    together: makes a call of all workers.
    """
    digest = hashlib.sha256(msgspec.json.encode(batches, enc_hook=str)).hexdigest()

    def agreed(group: Group) -> Batches:
        if len(set(gather_plain(digest, group))) == 1:
            return batches
        found: Batches = gather_plain(batches if group.leads else None, group)[0]
        return found

    return together("feed", agreed)
