"""Random schedules of members: workers of a run join, leave, are killed and stopped while it trains.

A seed decides the strategy, how many things happen, which, and after which steps. No machine is as quick as another, so
a seed that failed once fails often, and not always.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import torch

from _fault_checks import Traces, result_of
from _fault_members import Members, newest_step
from _fault_schedules import Played
from volary.run.checkpoints import SHARED, Checkpoints, read
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.train.state.state_file import unpacked

WORKERS = 3
EPOCHS, SAMPLES = 16, 256
STEPS = EPOCHS * SAMPLES // 32  # of global batches, before anybody comes or goes
WITHIN_S = 400.0  # of a run, on a machine that does much else
LOOK_S = 0.05
LOST = 4  # the exit code of a run that nobody is left of
SESSION = """\
network: net.py:Net
data: {{source: {{name: synthetic, shape: [16], classes: 4, samples: {samples}, kind: blobs}}, batch_size: 32}}
optimizer: {{name: sgd, lr: 0.02, momentum: 0.5}}
train: {{epochs: {epochs}, compare_replicas: 20 steps}}
evaluate: {{every: 30 steps}}
checkpoint: {{every: 40 steps, keep_best: false}}
strategy: {{workers: {workers}, recover: memory, suspect_after_s: 3, give_up_after_s: 6, {settings}}}
run: {{name: it}}
"""
STRATEGIES = {
    "bsp": "consistency: bsp",
    "ring": "exchange: {name: allreduce, route: ring}",
    "torch": "exchange: {name: allreduce, route: torch}",
    "onebit": "codec: onebit",
    "topk": "codec: {name: topk, ratio: 0.1}",
    "spare": "spares: 1",
    "local": "consistency: {name: local, period: 4}",
    "diloco": "consistency: {name: local, period: 4, outer: {name: sgd, lr: 0.7, momentum: 0.9, nesterov: true}}",
    "elastic": "consistency: {name: elastic, period: 2}",
    "gossip": "consistency: {name: gossip, period: 2}",
}
_LOCAL = {"name": "local", "period": 4}
OWN_LOOPS: dict[str, dict[str, Any]] = {
    "own": {},
    "own-ring": {"exchange": {"name": "allreduce", "route": "ring"}},
    "own-torch": {"exchange": {"name": "allreduce", "route": "torch"}},
    "own-topk": {"codec": {"name": "topk", "ratio": 0.1}},
    "own-local": {"consistency": _LOCAL},
    "own-diloco": {"consistency": {**_LOCAL, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}}},
    "own-elastic": {"consistency": {"name": "elastic", "period": 2}},
    "own-gossip": {"consistency": {"name": "gossip", "period": 2}},
}  # which nobody joins
EVENTS = {"join": 30, "leave": 25, "kill": 25, "kill two": 8, "stop": 6, "save": 10, "kill joiner": 6}  # by how often


def play(seed: int, below: Path, *, own: bool = False) -> Played:
    """Play the schedule in a folder of its own below `below`, which stays if a promise was broken.

    own: with loops of one's own in place of sessions.
    """
    random = Random(seed)
    name = random.choice(list(OWN_LOOPS if own else STRATEGIES))
    played, folder = Played(seed, name), below / f"schedule-{seed}"
    folder.mkdir(parents=True)
    if own:
        program = shutil.copy(Path(__file__).with_name("_members_own_loop.py"), folder / "own.py")
        command = [Path(program).name, repr({"epochs": EPOCHS, "samples": SAMPLES}), repr(OWN_LOOPS[name])]
    else:
        shutil.copy(Path(__file__).with_name("_faults_net.py"), folder / "net.py")
        settings = {"samples": SAMPLES, "epochs": EPOCHS, "workers": WORKERS, "settings": STRATEGIES[name]}
        (folder / "session.yaml").write_text(SESSION.format(**settings), encoding="utf-8")
        command = ["-m", "volary", "train", "session.yaml"]
    with Traces(folder) as traces:
        if _Schedule(folder, traces, played, random, command).go() == 0:
            played.broken += traces.left()
    if not played.broken:
        shutil.rmtree(folder)
    return played


class _Schedule:
    """One run, which Python's `command` starts, and the commands beside it."""

    def __init__(self, folder: Path, traces: Traces, played: Played, random: Random, command: Sequence[str]) -> None:
        self._command = command
        self._folder, self._traces, self._played, self._random = folder, traces, played, random
        self._beside: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        self._stopped: list[psutil.Process] = []
        self._gone = self._killed = 0  # workers that were killed or asked to leave, and of these the killed ones

    def go(self) -> int | None:
        """Let things happen to the run until it has ended, and look at what it has come to; its exit code."""
        with self._started("run", *self._command) as (run, said):
            moments = sorted(self._random.randint(1, STEPS * 2 // 3) for _ in range(self._random.randint(1, 4)))
            for moment in moments:
                self._until(run, moment)
                if run.poll() is None:
                    self._happen(run)
            self._until(run, None)
            for one in self._stopped:
                with suppress(psutil.Error):
                    one.resume()
            if run.poll() is None:
                self._break(f"did not end within {WITHIN_S:.0f} s: {', '.join(self._traces.processes())}")
                self._traces.kill()
        self._look_at(run.returncode, said)
        for name, process, beside in self._beside:
            self._look_beside(name, process, beside)
        if left := self._traces.processes_left():
            self._break(f"left {', '.join(left)}")
        return run.returncode

    def _happen(self, run: subprocess.Popen[bytes]) -> None:
        kind = self._random.choices(list(EVENTS), list(EVENTS.values()))[0]
        members, step = Members.of(self._folder, run.pid), newest_step(self._folder, 0)
        workers = [(who, one) for who, one in members.by_name.items() if who.startswith("worker")]
        match kind:
            case "join":
                self._begin(f"join at step {step}", "join", "it")
            case "save":
                self._begin(f"save at step {step}", "save", "it")
            case "leave":
                rank = self._random.randrange(WORKERS + 1)
                self._gone += 1
                self._begin(f"leave {rank} at step {step}", "leave", "it", str(rank))
            case "kill joiner":
                for _, process, _ in [one for one in self._beside if one[0].startswith("join")][:1]:
                    self._gone, self._killed = self._gone + 1, self._killed + 1
                    self._tell(f"kill joiner at step {step}")
                    for child in _children(process):
                        self._send(child, signal.SIGKILL)
            case _:
                self._random.shuffle(workers)
                killed = {"kill": 1, "kill two": 2}.get(kind, 0)
                # who is stopped for long is lost, too
                self._gone, self._killed = self._gone + max(1, killed), self._killed + max(1, killed)
                for who, one in workers[: 2 if kind == "kill two" else 1]:
                    self._tell(f"{kind} {who} at step {step}")
                    self._send(one, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
                    self._stopped += [one] if kind == "stop" else []

    def _look_at(self, code: int | None, said: Path) -> None:
        """The promises of a run's end."""
        self._tell(f"ended with {code}")
        text = said.read_text(errors="replace")
        nobody_left = code == LOST and self._gone >= WORKERS
        if code and not nobody_left:
            self._break(f"ended with {code}: {text[-400:]!r}")
        if "Traceback (most recent call last)" in text:
            self._break("printed a traceback")
        if code:
            return
        if (samples := self._learnt()) != EPOCHS * SAMPLES:
            self._break(f"learnt from {samples} samples of {EPOCHS * SAMPLES}")
        recorded = self._recorded()
        if recorded > EPOCHS * SAMPLES or (not self._killed and recorded < EPOCHS * SAMPLES):
            self._break(f"recorded {recorded} samples of {EPOCHS * SAMPLES}")  # who is killed has not told its newest

    def _learnt(self) -> int:
        """The samples of all steps that count, as the last checkpoint has them."""
        if not self._played.strategy.startswith("own"):
            return result_of(self._folder).samples
        directory = RunDirectory(self._folder / "runs" / "it")
        if self._played.strategy not in ("own-elastic", "own-gossip"):
            ended = [unpacked(file.read_bytes(), file) for file in directory.results.glob("rank-*.pt")]
            if any(not torch.equal(value, ended[0][name]) for one in ended for name, value in one.items()):
                self._break("ended with replicas that differ")
        checkpoints = Checkpoints(directory.checkpoints)
        newest = checkpoints.steps()[-1]
        folder = checkpoints.path(newest)
        state = unpacked(read(folder, checkpoints.verify(newest), SHARED), folder / SHARED)
        return int(state["place"]["seen"])

    def _recorded(self) -> int:
        with RunReader(RunDirectory(self._folder / "runs" / "it")) as reader:
            return sum(row.samples for row in reader.steps())

    def _look_beside(self, name: str, process: subprocess.Popen[bytes], said: Path) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        if process.poll() is None:
            self._break(f"{name} did not end")
        text = said.read_text(errors="replace")
        if "Traceback (most recent call last)" in text or (process.returncode and not text.strip()):
            self._break(f"{name} ended with {process.returncode}: {text[-400:]!r}")

    def _until(self, run: subprocess.Popen[bytes], step: int | None) -> None:
        """Wait for a step of the run, or for its end."""
        until = time.monotonic() + WITHIN_S
        while run.poll() is None and time.monotonic() < until:
            if step is not None and newest_step(self._folder, 0) >= step:
                return
            time.sleep(LOOK_S)

    @contextmanager
    def _started(self, name: str, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        said = self._folder / f"said-{len(self._beside)}-{name}"
        variables = os.environ | self._traces.variables
        with said.open("wb") as file:
            whole = [sys.executable, *command]
            yield (
                subprocess.Popen(
                    whole, cwd=self._folder, env=variables, stdout=file, stderr=file, start_new_session=True
                ),
                said,
            )

    def _begin(self, name: str, *command: str) -> None:
        self._tell(name)
        with self._started(command[0], "-m", "volary", *command) as (process, said):
            self._beside.append((name, process, said))

    def _tell(self, what: str) -> None:
        self._played.told.append(what)

    def _break(self, promise: str) -> None:
        self._played.broken.append(promise)

    def _send(self, process: psutil.Process, number: int) -> None:
        with suppress(psutil.Error):
            process.send_signal(number)


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return list[psutil.Process](psutil.Process(process.pid).children(recursive=True))
    return []
