"""A rank of _scaling_steps.py over servers: trains as `volary train` does, and notes what steps cost it.

A lab starts it on its hosts as `python _scaling_served_ranks.py session.yaml WANTED`, with WANTED as JSON: steps. The
server beside the worker is its child, and counts with it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import psutil
import torch

from _in_lab import be_rank
from _scaling_steps import SERVED, WARM_STEPS
from volary.session.spec import Session
from volary.train.worker.served_session import run_served

if TYPE_CHECKING:
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder

LOOK_S = 0.02


@dataclass(frozen=True)
class Cost:
    """The cost of a step of one rank: seconds, and CPU seconds of its processes."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class _Seen:
    step: int
    at_s: float
    cpu_s: float

    @classmethod
    def now(cls, recorder: Recorder) -> _Seen:
        own = psutil.Process()
        times = [one.cpu_times() for one in [own, *own.children(recursive=True)]]
        return cls(recorder.step, time.perf_counter(), sum(one.user + one.system for one in times))


def take_steps(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """The job: a worker's, with somebody who looks at the clock."""
    torch.set_num_threads(1)
    steps = json.loads(sys.argv[2])["steps"]
    seen: list[_Seen] = []

    def watch() -> None:
        for least in (WARM_STEPS, WARM_STEPS + steps):
            while recorder.step < least:
                time.sleep(LOOK_S)
            seen.append(_Seen.now(recorder))

    watching = threading.Thread(target=watch, name="watch", daemon=True)
    watching.start()
    outcome = run_served(Session.read(member.directory.session), member, recorder, pulse)
    watching.join(10 * LOOK_S)
    first, last = seen
    made = last.step - first.step
    cost = Cost((last.at_s - first.at_s) / made, (last.cpu_s - first.cpu_s) / made)
    file = member.directory.results / SERVED.format(rank=member.place.rank)
    file.write_text(json.dumps(asdict(cost)), encoding="utf-8")
    return outcome


if __name__ == "__main__":
    sys.exit(be_rank("_scaling_served_ranks:take_steps"))
