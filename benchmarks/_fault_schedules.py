"""Random fault schedules: a run of some strategy, signals to some of its processes, and resumes until it is done.

A seed decides the strategy, how many signals there are, which, to whom, and when (after some seconds or some steps). No
machine is as quick as another, so a seed that failed once fails often, and not always.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from _fault_checks import Result, Traces, result_of
from _fault_members import Members, newest_step

STEPS = 120
ATTEMPTS = 7  # starts of one run, of which the first three may be disturbed
DISTURBED = (1.0, 0.4, 0.2)  # how likely each of these is
WITHIN_S = 600.0  # of a start, on a machine that does much else
LOOK_S = 0.05
SIGNALS = {"KILL": 50, "STOP": 18, "TERM": 17, "INT": 15}  # by how often
NOTHING_TO_DO, LOST, STOPPED = 2, 4, 130  # exit codes; the first where a driver was killed after the last save
SESSION = """\
network: net.py:Net
data: {{source: {{name: synthetic, shape: [16], classes: 4, samples: 256, kind: blobs}}, batch_size: 32}}
optimizer: {{name: sgd, lr: 0.02, momentum: 0.5}}
train: {{steps: {steps}}}
evaluate: {{every: 40 steps}}
checkpoint: {{every: 15 steps, keep_best: false}}
strategy: {{workers: {workers}, suspect_after_s: 3, give_up_after_s: 6, {settings}}}
run: {{name: it}}
"""


@dataclass(frozen=True)
class Strategy:
    """A strategy of training. exact: a resumed run ends with the weights of one that nobody disturbed, bit for bit."""

    settings: str
    workers: int = 2
    exact: bool = True


_TWO = "exchange: {name: server, servers: 2}"
_COPIES = "exchange: {name: server, servers: 2, replicas: 2}"
STRATEGIES = {
    "bsp": Strategy("consistency: bsp"),
    "bsp-3": Strategy("consistency: bsp", workers=3),
    "onebit": Strategy("codec: onebit"),
    "powersgd": Strategy("codec: powersgd"),
    "topk": Strategy("codec: topk"),
    "int8": Strategy("codec: int8"),
    "local": Strategy("consistency: {name: local, period: 4}"),
    "gossip": Strategy("consistency: gossip", workers=3),
    "server-bsp": Strategy(_TWO),
    "server-bsp-copies": Strategy(_COPIES),
    "server-onebit": Strategy(f"{_TWO}, codec: onebit"),
    "server-local": Strategy(f"consistency: {{name: local, period: 4}}, {_TWO}"),
    "ssp": Strategy(f"consistency: {{name: ssp, staleness: 2}}, {_TWO}", exact=False),
    "ssp-copies": Strategy(f"consistency: {{name: ssp, staleness: 2}}, {_COPIES}", exact=False),
    "async": Strategy("consistency: async", exact=False),
    "async-topk-copies": Strategy(f"consistency: async, {_COPIES}, codec: topk", exact=False),
    "backup": Strategy("consistency: {name: backup, k: 2}", workers=3, exact=False),
    "backup-copies": Strategy(f"consistency: {{name: backup, k: 1}}, {_COPIES}", exact=False),
}


@dataclass
class Played:
    """One schedule. told: what happened in each start. broken: promises that were not kept; empty if all were."""

    seed: int
    strategy: str
    told: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = f"BROKEN: {'; '.join(self.broken)}" if self.broken else "kept"
        return f"schedule {self.seed}, {self.strategy}: {' | '.join(self.told)}: {verdict}"


class Schedules:
    """Plays schedules below `folder`, where what undisturbed runs came to is kept, by strategy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._undisturbed: dict[str, Result] = {}

    def play(self, seed: int) -> Played:
        """Play one; its folder stays if a promise was broken."""
        random = Random(seed)
        name = random.choice(list(STRATEGIES))
        played, folder = Played(seed, name), self._folder / f"schedule-{seed}"
        expected = self._expected(name)
        _prepare(folder, STRATEGIES[name])
        with Traces(folder) as traces:
            for attempt in range(ATTEMPTS):
                likely = DISTURBED[attempt] if attempt < len(DISTURBED) else 0.0
                strikes = random.choice((1, 1, 2)) if random.random() < likely else 0
                if _Start(folder, attempt, traces, played).go(random, strikes):
                    break
            else:
                played.broken.append("never finished")
            played.broken += traces.left()
        if not played.broken:
            played.broken += result_of(folder).differs(expected, exact=STRATEGIES[name].exact)
        if not played.broken:
            shutil.rmtree(folder)
        return played

    def _expected(self, name: str) -> Result:
        if name not in self._undisturbed:
            folder = self._folder / f"undisturbed-{name}"
            _prepare(folder, STRATEGIES[name])
            patient = "strategy.give_up_after_s=60"  # however busy the machine is: there is nothing to be found
            command = [sys.executable, "-m", "volary", "train", "session.yaml", patient, "--quiet"]
            subprocess.run(command, cwd=folder, check=True, timeout=WITHIN_S, stdout=subprocess.DEVNULL)
            self._undisturbed[name] = result_of(folder)
            shutil.rmtree(folder)
        return self._undisturbed[name]


def _prepare(folder: Path, strategy: Strategy) -> None:
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("_faults_net.py"), folder / "net.py")
    text = SESSION.format(steps=STEPS, workers=strategy.workers, settings=strategy.settings)
    (folder / "session.yaml").write_text(text, encoding="utf-8")


class _Start:
    """One start of a schedule's run: `train`, or `resume` if there is something to resume."""

    def __init__(self, folder: Path, attempt: int, traces: Traces, played: Played) -> None:
        self._folder, self._attempt, self._traces, self._played = folder, attempt, traces, played
        self._said = folder / f"said-{attempt}"
        self._struck: list[str] = []
        self._continue_at: list[tuple[float, psutil.Process]] = []

    def go(self, random: Random, strikes: int) -> bool:
        """Let it run to its end, whatever befalls it; whether the run is done."""
        begun = (self._folder / "runs" / "it" / "session.yaml").exists()
        command = ["resume", "it"] if begun else ["train", "session.yaml"]
        started = time.monotonic()
        with self._running(command) as process:
            if strikes:
                self._wait(process, random)
            for number in range(strikes):
                if number:
                    self._until(process, time.monotonic() + random.choice((0.0, random.random())))
                self._strike(process, random)
            ended = self._until(process, time.monotonic() + WITHIN_S)
            if not ended:
                self._broken(f"did not end within {WITHIN_S:.0f} s: {', '.join(self._traces.processes())}")
                self._traces.kill()
        code = process.wait()
        took_s = time.monotonic() - started
        self._played.told.append(
            f"{command[0]}: {', '.join(self._struck) or 'undisturbed'}: {code} after {took_s:.0f} s"
        )
        done = code == 0 or (code == NOTHING_TO_DO and f"is finished, after {STEPS} steps" in self._said.read_text())
        if ended:
            self._look_at(0 if done else code)
        return done

    @contextmanager
    def _running(self, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        variables = os.environ | self._traces.variables
        with self._said.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "volary", *command],
                cwd=self._folder,
                env=variables,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                for _, one in self._continue_at:
                    with suppress(psutil.Error):
                        one.resume()

    def _wait(self, process: subprocess.Popen[bytes], random: Random) -> None:
        """Until the moment that the schedule has for its first signal."""
        seconds, step = random.uniform(0.3, 9), random.randint(1, STEPS - 1)
        if random.random() < 0.25:
            self._until(process, time.monotonic() + seconds)
            return
        until = time.monotonic() + WITHIN_S
        while process.poll() is None and time.monotonic() < until and newest_step(self._folder, self._attempt) < step:
            time.sleep(LOOK_S)

    def _strike(self, process: subprocess.Popen[bytes], random: Random) -> None:
        """Send somebody a signal. Whoever is stopped goes on later, or never; but for those who end the others."""
        members = Members.of(self._folder, process.pid)
        kind = random.choice(("worker", "worker", "server", "helper", "driver"))
        name = random.choices(list(SIGNALS), list(SIGNALS.values()))[0]
        goes_on, after_s = random.random() < 0.6, random.choice((random.uniform(0.2, 3), random.uniform(3, 14)))
        if (chosen := members.choose(kind, random)) is None:
            return
        who, victim = chosen
        with suppress(psutil.Error):
            victim.send_signal(getattr(signal, f"SIG{name}"))
            self._struck.append(f"{name} {who} at step {newest_step(self._folder, self._attempt)}")
            if name == "STOP" and (goes_on or who.split()[0] in ("driver", "helper")):
                self._continue_at.append((time.monotonic() + after_s, victim))

    def _until(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait for the end, or for the deadline, and let go on who is to; whether it has ended."""
        while process.poll() is None and time.monotonic() < deadline:
            for moment, one in [due for due in self._continue_at if due[0] <= time.monotonic()]:
                self._continue_at.remove((moment, one))
                with suppress(psutil.Error):
                    one.resume()
            time.sleep(LOOK_S)
        return process.poll() is not None

    def _look_at(self, code: int) -> None:
        """The promises of every end."""
        text = self._said.read_text(errors="replace")
        to_driver = {-getattr(signal, f"SIG{one.split()[0]}") for one in self._struck if " driver " in one}
        accepted = {0} | ({LOST, STOPPED} | to_driver if self._struck else set())
        if code not in accepted:
            self._broken(f"ended with {code}: {text[-300:]!r}")
        if "Traceback (most recent call last)" in text:
            self._broken("printed a traceback")
        saved = list((self._folder / "runs" / "it" / "checkpoints").glob("step-*"))
        if code == LOST and saved and "volary resume" not in text:
            self._broken("did not say how to resume")
        if left := self._traces.processes_left():
            self._broken(f"left {', '.join(left)}")
            self._traces.kill()

    def _broken(self, promise: str) -> None:
        self._played.broken.append(f"start {self._attempt} {promise}")
