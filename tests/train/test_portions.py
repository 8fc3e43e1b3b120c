"""A worker over servers reads and decodes the portion that comes next while it trains on the one at hand."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from volary.consistency.bsp import Bsp
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.scale import Scale
from volary.data.sample_reader import SampleReader
from volary.data.skipping import Skipping
from volary.server.protocol.to_members import EvaluatePiece, Learn
from volary.server.protocol.updates import Portion
from volary.sharding.epochs import Epochs
from volary.train.coordinator import EvaluateTask, LearnTask
from volary.train.recording.reads import Reads
from volary.train.recording.recorder import Recorder
from volary.train.served.by_roster import ByRoster, LearningSettings, SessionFlow
from volary.train.served.portions import SessionPortions

SAMPLES, BATCH = 64, 8


class Numbers:
    """Records and their decoder: sample i is an image of one pixel of value i. corrupt: cannot be decoded."""

    block, remote, kind = 1, False, "a number"

    def __init__(self, corrupt: frozenset[int] = frozenset()) -> None:
        self.corrupt = corrupt
        self.by_thread: dict[int, str] = {}

    def __len__(self) -> int:
        return SAMPLES

    def name(self, index: int) -> str:
        return f"record {index}"

    def expect(self, indices) -> None:
        pass

    def dropped(self) -> list[str]:
        return []

    def read(self, index: int) -> bytes:
        self.by_thread[index] = threading.current_thread().name
        return bytes([index])

    def __call__(self, record: bytes, out=None) -> np.ndarray:
        if record[0] in self.corrupt:
            raise ValueError("damaged")
        return np.frombuffer(record, np.uint8).reshape(1, 1, 1)


class Roster:
    """Says these tasks, and the next one ahead of its time."""

    outcome = "finished"
    oldest_ahead = 0

    def __init__(self, tasks: list[Learn | EvaluatePiece]) -> None:
        self.tasks, self.lost, self.totals = tasks, 0, []

    def __iter__(self):
        return iter(self.tasks)

    def ahead(self, clock: int) -> list[Portion]:
        return next((task.portions for task in self.tasks if isinstance(task, Learn) and task.clock > clock), [])

    def computed(self, clock, loss, *, finite, lost, rates, counted, waits, carries) -> None:
        self.lost += lost

    def decide(self, clock, clip) -> None:
        assert clip is None

    def is_dropped(self, clock: int) -> bool:
        return False


REPLICA = SimpleNamespace(
    computed=lambda loss: None,
    before_backward=lambda last, counted: None,
    step=lambda oldest, samples: None,
    traffic=(),
    as_of=lambda snapshot: nullcontext(True),
)


def told(*spans: tuple[int, int]) -> Learn:
    """A contribution of these samples of the first epoch."""
    return Learn(spans[0][0], [Portion(start, 0, start, end) for start, end in spans], 0, 0)


def by_roster(roster: Roster, numbers: Numbers) -> ByRoster:
    pipeline = Pipeline(numbers, torch.arange(SAMPLES), None, numbers, Scale(1.0, 0.0))
    samples = Skipping(pipeline, lambda *_: None)
    cpu = torch.device("cpu")
    flow = SimpleNamespace(counted=lambda targets: float(len(targets)))
    network = SimpleNamespace(flow=flow, device=cpu, mixing=None)
    reader = SessionPortions(SampleReader(samples, BATCH, seed=1), BATCH, 2, network, Reads(samples, Recorder(0)))
    settings = LearningSettings(consistency=Bsp(), epochs=Epochs(SAMPLES, BATCH), seed=1, lr=lambda _: 0.1)
    return ByRoster(
        settings,
        work=roster,
        replica=REPLICA,
        recorder=Recorder(0),
        reader=reader,
        session=SessionFlow(None, nullcontext, samples, str),
    )


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "decode":
            thread.join(60)


def test_the_next_portion_is_decoded_before_it_is_asked_for():
    roster, numbers = Roster([told((0, 8)), told((8, 12), (12, 16))]), Numbers()
    coordinator = by_roster(roster, numbers)
    tasks = iter(coordinator)
    first = next(tasks)
    for part in first.parts:
        coordinator.computed(part, 0.5)
    settle()
    assert sorted(numbers.by_thread) == list(range(16))
    coordinator.complete(first)
    numbers.by_thread.clear()
    second = next(tasks)
    seen = [value for part in second.parts for value in part.inputs.flatten().tolist()]
    assert seen == list(range(8, 16))
    assert not numbers.by_thread, "it was at hand"


@pytest.mark.parametrize("changes", [False, True])
def test_every_sample_comes_once_in_its_place_without_those_that_cannot_be_read_whatever_was_said_ahead(changes):
    spans = [(start, start + 4) for start in range(0, SAMPLES, 4)]
    mixed = [*spans[4:], *spans[:4]]
    roster, numbers = Roster([told(*mixed[at : at + 2]) for at in range(0, len(mixed), 2)]), Numbers(frozenset({5, 40}))
    if changes:
        roster.ahead = lambda clock: [Portion(0, 0, 60, 64), Portion(0, 1, 0, 4)]  # never what comes next
    coordinator, seen = by_roster(roster, numbers), []
    for task in coordinator:
        assert isinstance(task, LearnTask)
        for part in task.parts:
            values = part.inputs.flatten().tolist()
            assert [part.number(place) for place in range(part.count)] == values
            seen += values
            coordinator.computed(part, 0.5)
        coordinator.complete(task)
    order = [index for start, end in mixed for index in range(start, end)]
    assert seen == [index for index in order if index not in (5, 40)]


@pytest.mark.parametrize("piece", [(0, 20), (20, 64)])
def test_a_piece_of_an_evaluation_is_decoded_ahead_and_whole(piece):
    roster, numbers = Roster([EvaluatePiece(0, 0, *piece)]), Numbers(frozenset({9}))
    (task,) = by_roster(roster, numbers)
    assert isinstance(task, EvaluateTask)
    batches = iter(task.batches)
    found = [next(batches)]
    settle()
    assert len(numbers.by_thread) > BATCH
    found += batches
    seen = [value for batch in found for value in batch.to(torch.device("cpu")).inputs.flatten().tolist()]
    assert seen == [index for index in range(*piece) if index != 9]
    assert sum(batch.lost for batch in found) == (9 in range(*piece))
