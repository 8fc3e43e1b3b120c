"""Counts cost where it arises: times the phases of each step and keeps what the worker has to say until it is sent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from volary.run.database.journal import StepRow
from volary.run.database.traffic import Traffic, added, since, totals
from volary.run.machine import clock
from volary.sharding.groups import leads
from volary.train.recording.spans import Spans
from volary.train.recording.usage import UsageSamples

STEP_PHASES = ("data", "forward", "backward", "exchange", "optimizer")


class Recorder:
    """One worker's clock and notebook. The pulse thread reads it; the training thread writes, and any thread events.

    place: of this worker in the group that trains, which is another than its rank once a worker before it was lost.
    phase: what the worker is in; in "exchange" and "idle" it waits for others, and they never for it.
    part: of the network, that this worker has, in words; empty: all of it.
    call: of the user's, in which all workers wait for each other just now, `worker.mean` say; empty in a step.
    progress: grows with every change of phase, and as what is waited for comes.
    spans: what happened within steps, of those that are recorded in full; other threads add to it too.
    usage: what this process uses, if that is looked at. step_s: what the newest step took. busy_s: the same without
    waits for others. saves: checkpoints begun.
    hand_over: sends what is here now, which otherwise happens with the next beat. What happens between `end_step` and
    `begin_step` (an evaluation, a checkpoint) counts for no step.
    """

    def __init__(self, rank: int) -> None:
        self.rank = self.place = rank
        self.step = 0
        self.phase = "starting"
        self.part = self.call = ""
        self.progress = 0
        self.since = time.perf_counter()
        self.step_s = self.busy_s = 0.0
        self.saves = 0
        self.hand_over: Callable[[], None] = lambda: None
        self.rows: deque[StepRow] = deque()
        self.events: deque[dict[str, Any]] = deque()
        self.spans = Spans()
        self.usage: UsageSamples | None = None
        self._warned = set[str]()
        self._traffic: tuple[Traffic, ...] = ()  # replaced as a whole: another thread reads it
        self._traffic_before: tuple[Traffic, ...] = ()  # by those that were replaced
        self._recorded_traffic: tuple[Traffic, ...] = ()
        self._spent = dict.fromkeys(STEP_PHASES, 0.0)
        self._in_step = False
        self._done = 0  # steps of this attempt
        self._starting = True

    @property
    def leads(self) -> bool:
        """Whether this worker says what one is to say for all."""
        return leads(self.place)

    @classmethod
    def unheard(cls) -> Recorder:
        """A recorder that nobody reads: it keeps only the newest row and event."""
        recorder = cls(0)
        recorder.rows, recorder.events = deque(maxlen=1), deque(maxlen=1)
        return recorder

    def enter(self, phase: str) -> None:
        """The worker leaves its phase for `phase`."""
        now = time.perf_counter()
        spent = now - self.since
        if self._in_step and self.phase in self._spent:
            self._spent[self.phase] += spent
            if self.spans.recording:
                self.spans.add(self.step + 1, "phase", self.phase, self.since, now)
        self.phase, self.since = phase, now
        self.progress += 1

    def moved(self) -> None:
        """Something that the worker waits for has arrived; from any thread."""
        self.progress += 1  # if another thread's is lost to this one, it has grown all the same

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count time as waiting for others, meanwhile; then the worker is in the phase before again."""
        phase = self.phase
        self.enter("exchange")
        yield
        self.enter(phase)

    @contextmanager
    def called(self, call: str) -> Iterator[None]:
        """Note, meanwhile, that the user's code waits for others in `call`, which all workers make together."""
        phase = self.phase
        self.call = call
        self.enter("exchange")
        try:
            yield
        finally:
            self.enter(phase)
            self.call = ""

    def retire(self, traffic: Iterable[Traffic]) -> None:
        """Keep what a replica has sent and received that exchanges no more: the totals of the next one begin at 0."""
        self._traffic_before = added(self._traffic_before, traffic)

    def begin_step(self) -> None:
        """Count time for the next step from now on; it begins by waiting for data."""
        self.enter("data")
        self._in_step = True
        self.spans.begin(self.step + 1)
        if self._starting:  # a worker that is stopped in its first steps has not the time of a start
            self._starting = False
            self.hand_over()

    def enter_step(self, phase: str) -> None:
        """The worker enters `phase`, of the next step if none has begun."""
        if not self._in_step:
            self.begin_step()
        self.enter(phase)

    def end_step(
        self,
        *,
        epoch: float,
        samples: int,
        loss: float,
        lr: float,
        traffic: tuple[Traffic, ...] = (),
    ) -> None:
        """Close a step with what it did. traffic: since the start, by codec and route."""
        self.enter("between steps")
        self._in_step = False
        self.step += 1
        before, self._traffic = totals(self._traffic), added(self._traffic_before, traffic)
        sent, received = totals(self._traffic)
        spent = self._spent
        self.step_s = sum(spent.values())
        self.busy_s = self.step_s - spent["exchange"]
        self.rows.append(
            StepRow(
                step=self.step,
                rank=self.rank,
                ended_at=clock.now_s(),
                epoch=epoch,
                samples=samples,
                loss=loss,
                lr=lr,
                step_s=self.step_s,
                data_s=spent["data"],
                forward_s=spent["forward"],
                backward_s=spent["backward"],
                exchange_s=spent["exchange"],
                optimizer_s=spent["optimizer"],
                sent_bytes=sent - before[0],
                received_bytes=received - before[1],
            )
        )
        for phase in spent:
            spent[phase] = 0.0
        self._done += 1
        if self._done.bit_count() == 1:  # before the next beat: a worker that dies soon is known to have come so far
            self.hand_over()

    def begin_save(self) -> None:
        """A checkpoint of this step is begun, after which steps up to it are never done again: they are sent now."""
        self.saves += 1
        self.hand_over()
        self.enter("checkpoint")

    def go_on_from(self, step: int) -> None:
        """Steps up to `step` were done in an earlier attempt."""
        self.step = step

    def event(self, kind: str, **data: Any) -> None:
        """Record an event of this step; it is sent with the next heartbeat."""
        self.event_of(self.step, kind, data)

    def event_of(self, step: int, kind: str, data: dict[str, Any]) -> None:
        """Record an event of an earlier step: what was begun then has ended. From any thread."""
        self.events.append({"event": kind, "step": step, "data": data})

    def warn_once(self, text: str) -> None:
        """Record a warning, unless it was recorded so before."""
        if text not in self._warned:
            self._warned.add(text)
            self.event("warning", text=text)

    def metrics(self, values: dict[str, float]) -> None:
        """An evaluation at this step measured `values`."""
        self.events.append({"metrics": values, "step": self.step})

    def histograms(self, found: list[Any]) -> None:
        """How values are spread after this step, as `volary.train.recording.histograms` has them."""
        self.events.append({"histograms": found, "step": self.step})

    def network(self, graph: dict[str, Any]) -> None:
        """The layers that are trained, as `volary.network.layer_graph` has them."""
        self.events.append({"network": graph})

    def first_steps(self, losses: list[str], drawn: dict[str, str]) -> None:
        """Record what the first steps of a user's own loop have done, as `volary.train.own.first_steps` has it."""
        self.events.append({"losses": losses, "drawn": drawn})

    def writes(self, path: str, place: str) -> None:
        """The user's code opens a file to write, at that place of it; from any thread."""
        self.events.append({"writes": path, "place": place})

    def starting(self, doing: str) -> None:
        """Report what this worker does while it starts, for those who look on and wait."""
        self.note(**{f"doing_{self.rank}": doing})

    def note(self, **facts: Any) -> None:
        """A fact about the run, replacing its older value."""
        self.events.append({"note": {key: str(value) for key, value in facts.items()}})

    def take(self, *, ending: bool = False) -> dict[str, Any]:
        """Take everything not taken yet, as plain values; for the thread that sends it. ending: for the last time."""
        rows = [list(self.rows.popleft()) for _ in range(len(self.rows))]
        events = [self.events.popleft() for _ in range(len(self.events))]
        if spans := self.spans.take():
            events.append({"spans": spans})
        traffic = self._traffic
        if added := since(traffic, self._recorded_traffic):
            events.append({"traffic": added})
            self._recorded_traffic = traffic
        if self.usage is not None and (usage := self.usage.take(ending=ending)):
            events.append({"usage": usage})
        return {"rows": rows, "events": events}
