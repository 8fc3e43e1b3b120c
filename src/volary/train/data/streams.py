"""Streams of samples: what a network keeps from one batch to the next, on one rank, and in checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from volary.data.batching.padding import lengths_of
from volary.data.datasets.stream import Stream
from volary.errors import SettingError
from volary.network.operations.carried_state import carried_states, states_apart
from volary.session.fitting.abilities import lacks
from volary.session.values.reference import name_of
from volary.sharding.samples import UNDIVIDED, SampleShare

if TYPE_CHECKING:
    from torch import nn

    from volary.data.batching.batch import Batch
    from volary.data.samples import Samples
    from volary.session.spec import Session


class Streams:
    """Each place of a batch is a stream, of samples that follow one another (`volary.data.order.in_streams`); see
    `RankState`. Nothing is to be done of a network that keeps no state.

    An epoch begins anew, as does a batch of another size, of what is left over of the samples; and this rank's streams
    around a batch of which it could not read a sample. share: this rank's streams.
    """

    def __init__(self, module: nn.Module, share: SampleShare = UNDIVIDED) -> None:
        self._states, self._share = carried_states(module), share
        self._size = 0  # streams of all ranks

    def keep(self) -> None:
        """Let the network keep its states from now on."""
        for state in self._states.values():
            state.keeping = True

    def begin(self, batch: Batch) -> None:
        """A batch is about to pass through the network."""
        if batch.total != self._size or batch.lost:
            self._begin_anew()
            self._size = batch.total

    def end(self, batch: Batch) -> None:
        """Note that the batch has passed, as often as it had to."""
        for state in self._states.values():
            state.advance()
        if batch.ends_epoch or batch.lost:
            self._begin_anew()

    def rank_state(self) -> dict[str, Any]:
        """The states of this rank's streams; {} of a network that keeps none."""
        if not self._states:
            return {}
        now = {name: state.now for name, state in self._states.items() if state.now is not None}
        return {"share": [self._share.number, self._share.count], "size": self._size, "now": now}

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Take up this rank's streams from states that have them, of any number of ranks.

        Raises SettingError if the network kept a state and no longer does, or the other way round.
        """
        if not states:
            return
        if bool(states[0]) != bool(self._states):
            kept, now = ("kept", "keeps none") if states[0] else ("kept no", "keeps one")
            raise SettingError(
                f"network: it {kept} state from batch to batch when the checkpoint was written, and {now} now: the "
                "order of the samples would be another; accepted: a network as before"
            )
        self._size = states[0]["size"] if self._states else 0
        for name, state in self._states.items():
            parts = [(one["share"], one["now"][name]) for one in states if name in one["now"]]
            if parts:
                streams = parts[0][1].new_zeros(self._size, *state.shape)
                for (number, count), part in parts:
                    streams[number::count] = part
                state.now = streams[self._share.number :: self._share.count].clone()

    def _begin_anew(self) -> None:
        for state in self._states.values():
            state.begin_anew()


@contextmanager
def evaluated_streams(module: nn.Module) -> Iterator[Streams]:
    """Streams of data that is evaluated, which begin anew; afterwards the network's states are those of training."""
    with states_apart(module, keeping=True):
        yield Streams(module)


def fit_streams(session: Session, module: nn.Module, samples: Samples | Stream) -> None:
    """Raise SettingError for settings with which a network that keeps state could not go on from batch to batch."""
    if not carried_states(module):
        return
    data, train, strategy = session.data, session.train, session.strategy
    differ = not isinstance(samples, Stream) and lengths_of(samples) is not None
    refusals = [
        (isinstance(samples, Stream), "data.source is a stream", "samples that are read by index"),
        (data.shuffle, "data.shuffle is true", "false, so that samples follow one another"),
        (data.divided, "data is divided by data.split or data.folds", "the source's own parts"),
        (differ, "its samples differ in length", "samples of one length"),
        (data.batch.largest(data.batch_size) != data.batch_size, "data.batch grows", "fixed"),
        (train.accumulate > 1, f"train.accumulate is {train.accumulate}", "1"),
        (bool(train.mix), "train.mix mixes samples", "none"),
        (train.compile, "train.compile is true", "false"),
        (strategy.recover == "memory", "with strategy.recover=memory a lost worker's state is gone", "checkpoint"),
        (strategy.balance == "auto", "with strategy.balance=auto samples change workers", "equal"),
        ("steps together" in lacks(strategy), "servers hand out samples", "strategy.exchange=allreduce"),
        (
            "steps together" in strategy.partition.needs,
            "strategy.partition gives workers parts of one network",
            "partition=data or sharded",
        ),
    ]
    for wrong, what, instead in refusals:
        if wrong:
            kept = f"network {name_of(session.network)!r} keeps state from batch to batch"
            raise SettingError(f"{kept}, and {what}; accepted: {instead}")
