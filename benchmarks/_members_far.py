"""Members of a run that are far from each other, in a lab: one leaves and another one comes, every so often."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from volary.lab import Lab
from volary.lab.jobs import Job
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

HOSTS, RATE, ROUND_TRIP, LOSS = 4, "20mbit", "50ms", "5%"
CHANGE_EVERY_S, WITHIN_S, LOOK_S = 30.0, 300.0, 0.25
VOLARY = [sys.executable, "-m", "volary"]
SESSION = f"""\
network: {{name: "{Path(__file__).with_name("_paced_net.py")}:Net", sample_s: 0.005}}
data: {{source: {{name: synthetic, shape: [256], classes: 10, samples: 128000}}, batch_size: 128}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
train: {{steps: 1000000, device: cpu}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy:
  workers: 1
  recover: memory
  interface: eth0
  consistency: {{name: local, period: 32}}
run: {{name: it}}
"""


def samples_per_s(window_s: float, *, changing: bool) -> float:
    """Samples that four workers learn from in a second, on four hosts. changing: members leave and come meanwhile."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        Lab(HOSTS, RATE, round_trip=ROUND_TRIP, loss=LOSS) as lab,
    ):
        Path("session.yaml").write_text(SESSION, encoding="utf-8")
        run = _FarRun(lab)
        for host in range(1, HOSTS):
            run.come(host)
        run.wait_until(lambda: run.training_with(HOSTS))
        begins = time.time()
        while (now := time.time()) < begins + window_s:
            if changing and now > begins + CHANGE_EVERY_S * (run.changes + 0.5):
                run.change()
            time.sleep(LOOK_S)
        found = run.learnt(begins, begins + window_s) / window_s
        print(f"  changing={changing}: {found:.1f} samples/s, {run.changes} changes", flush=True)
        return found


class _FarRun:
    """changes: how many members have left, each with another one that came."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self.directory = lab, RunDirectory("runs/it")
        self._log = Path("log").open("wb")  # noqa: SIM115 (of all processes, to the end)
        self._driver = self._start(0, "train", "session.yaml", "--quiet")
        self._there: list[tuple[int, int]] = []  # rank and host of those that have come, oldest first
        self.changes = 0
        self.wait_until(lambda: self.directory.database.exists() and bool(self._learnt_steps()))

    def come(self, host: int) -> None:
        """Have a worker of this host join; returns once it can train."""
        known = self._joined()
        self._start(host, "join", "it", "--quiet")
        self.wait_until(lambda: len(self._joined()) > len(known))
        self._there.append((self._joined()[-1], host))

    def change(self) -> None:
        """Have a worker come on the host of the oldest one, and that one leave."""
        rank, host = self._there.pop(0)
        self.come(host)
        subprocess.Popen([*VOLARY, "leave", "it", str(rank)], stdout=self._log, stderr=self._log)
        self.changes += 1

    def training_with(self, workers: int) -> bool:
        """Whether so many train together."""
        with RunReader(self.directory) as reader:
            found = [event.data["workers"] for event in reader.events(kind="recovered")]
        return bool(found) and found[-1] == workers

    def learnt(self, begins: float, ends: float) -> int:
        """Samples of all steps of all workers that ended in this time."""
        with RunReader(self.directory) as reader:
            return sum(row.samples for row in reader.steps() if begins < row.ended_at <= ends)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for it. Ends the benchmark if it does not come."""
        until = time.monotonic() + WITHIN_S
        while not condition():
            if time.monotonic() > until or self._driver.status is not None:
                raise SystemExit(f"the run did not come so far:\n{Path('log').read_text(encoding='utf-8')[-2000:]}")
            time.sleep(LOOK_S)

    def _start(self, host: int, *command: str) -> Job:
        return self._lab.start(host, [*VOLARY, *command], output=self._log)

    def _learnt_steps(self) -> int:
        with RunReader(self.directory) as reader:
            return reader.last_step()

    def _joined(self) -> list[int]:
        with RunReader(self.directory) as reader:
            return [event.rank for event in reader.events(kind="joined") if event.rank is not None]
