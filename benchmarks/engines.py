"""What does a run under an engine cost beside the engine's own way of starting the same training, and beside `local`?

    python benchmarks/engines.py [--quick] [--only NAME] [--json FILE]

`start-ENGINE` (2 workers) and `start-ENGINE-4`: one step of LeNet, from the command to the prompt, by `volary train
engine=ENGINE`, against a plain script of DistributedDataParallel that the engine starts itself: torchrun, mpirun, srun,
Ray Train's TorchTrainer. `step-ENGINE`: seconds of a step, against engine `local`, in turns of a second, 30 pairs of
them. `memory-ENGINE`: what the driver and its helper take beside workers and launcher (PSS), against 80 MB.
`kill-ENGINE` and `stop-ENGINE`: from SIGKILL and SIGSTOP of a worker until the console names it, against the promised
10 s; beside it stands what the engine's own way takes to end, up to 30 s, after which nobody waits any more.

An engine that is not here is left out, with its sentence. `slurm` is measured in an allocation that is made for it, in
the cluster that SLURM_CONF names; TorchTrainer needs `pip install 'ray[train]'`. A full run makes 7 pairs of starts, 3
where a pair takes the better part of a minute, as with Ray; --quick two. What the script has started ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from _report import Options, Row, alternated, arguments, compared, paired, report
from volary.engine import ROOM
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

ENGINES = ("torchrun", "mpi", "slurm", "ray")
LAUNCHERS = {"torchrun": "torchrun", "mpi": "mpirun", "slurm": "srun", "ray": "ray"}
OWN = {"torchrun": "torchrun", "mpi": "mpirun", "slurm": "srun", "ray": "TorchTrainer"}
PEER = str(Path(__file__).with_name("_engines_peer.py"))
PAIRS = {"ray": 3}  # a pair takes 42 s: a cluster starts twice
WITHIN_S, CAP_S, PROMISED_S = 180.0, 30.0, 10.0
LOOK_S, ENDED_S, TURN_S = 0.005, 10.0, 1.0
PR_SET_PDEATHSIG = 1
SESSION = """\
network: lenet
data: {{source: {{name: synthetic, shape: [1, 28, 28], samples: 1024}}, batch_size: 64}}
optimizer: {{name: sgd, lr: 0.001, momentum: 0.5}}
train: {{steps: {steps}, device: cpu}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy: {{workers: {workers}}}
run: {{name: it}}
"""


def main() -> None:
    """Run the rows that are asked for."""
    kinds: dict[str, Callable[[str, Options], Row]] = {
        "start-{}": lambda engine, options: _start(engine, 2, options),
        "start-{}-4": lambda engine, options: _start(engine, 4, options),
        "step-{}": _step,
        "memory-{}": _memory,
        "kill-{}": lambda engine, options: _detected("kill", signal.SIGKILL, engine, options),
        "stop-{}": lambda engine, options: _detected("stop", signal.SIGSTOP, engine, options),
    }
    wishes = {kind.format(engine): (engine, row) for kind, row in kinds.items() for engine in ENGINES}
    options, rows = arguments(__doc__, list(wishes)), []
    signal.signal(signal.SIGTERM, _terminated)
    wanted = {name: wish for name, wish in wishes.items() if options.wants(name)}
    # as small as they fit in: tasks of two emulated nodes would each take all cores of this machine
    tasks = {4 if name.endswith("-4") else 2 for name, (engine, _) in wanted.items() if engine == "slurm"}
    with _allocation(max(tasks, default=0)):
        for name, (engine, row) in wanted.items():
            if (reason := _why_not(name, engine)) is not None:
                print(f"{name}: left out: {reason}")
            else:
                rows.append(row(engine, options))
    report(rows, options.json)


def _terminated(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it twice, and what runs is to be ended in order
    raise SystemExit("terminated")


def _why_not(name: str, engine: str) -> str | None:
    alone = name.startswith(("step-", "memory-"))  # without a training of the engine's own
    if engine == "ray" and not alone and importlib.util.find_spec("ray") and importlib.util.find_spec("pandas") is None:
        return "Ray Train needs more than Ray: pip install 'ray[train]'"
    reason: str | None = ROOM.load(engine)().check(2)
    return reason


@contextlib.contextmanager
def _allocation(tasks: int) -> Iterator[None]:
    """An allocation of Slurm's for so many tasks, if any, which this process is in."""
    command = ["salloc", "--no-shell", f"--ntasks={tasks}"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr if tasks else ""
    except (OSError, subprocess.SubprocessError):
        said = ""  # its rows say why
    found = re.search(r"Granted job allocation (\d+)", said)
    if found is None:
        yield
        return
    os.environ["SLURM_JOB_ID"] = found[1]
    try:
        yield
    finally:
        subprocess.run(["scancel", found[1]], check=False)


def _start(engine: str, workers: int, options: Options) -> Row:
    found = paired(
        lambda: _seconds(_ours(engine), workers, 1),
        lambda: _seconds(_theirs(engine, workers, 1), workers, 1),
        2 if options.quick else PAIRS.get(engine, 7),
    )
    name = f"start-{engine}" + (f"-{workers}" if workers != 2 else "")
    print(f"{name}: {found.ratio:.3f} ± {found.spread:.3f}")
    return Row(name, found.ours, "s", OWN[engine], found.theirs, found.ratio, "at most 1.0", "lower")


def _step(engine: str, options: Options) -> Row:
    """Both run at once and take turns, driver, launcher and workers: what slows the machine slows both."""
    with _running(_ours(engine), 2, 10**6) as ours:
        directory = _trains(ours)
        with _running(_ours("local"), 2, 10**6) as local:
            sides = [(ours, directory), (local, _trains(local))]
            pids = [_all_of(*side) for side in sides]
            _signal(signal.SIGSTOP, [*pids[0], *pids[1]])
            try:
                turns = alternated(lambda: _turn(pids[0]), lambda: _turn(pids[1]), 5 if options.quick else 30)
            finally:
                _signal(signal.SIGCONT, [*pids[0], *pids[1]])
            steps = [_steps_s(*side, spans) for side, spans in zip(sides, zip(*turns, strict=True), strict=True)]
    found = compared(list(zip(*steps, strict=True)))
    print(f"step-{engine}: {found.ratio:.3f} ± {found.spread:.3f}")
    return Row(f"step-{engine}", found.ours, "s", "local", found.theirs, found.ratio, "at most 1.02", "lower")


def _turn(pids: Sequence[int]) -> tuple[float, float]:
    """Let these processes train for a while; from when to when, without the first steps."""
    _signal(signal.SIGCONT, pids)
    time.sleep(TURN_S)
    _signal(signal.SIGSTOP, pids)
    ended_at = time.time()
    return ended_at - 0.8 * TURN_S, ended_at


def _signal(number: signal.Signals, pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # Ray ends some of its own that have nothing to do
            os.kill(pid, number)


def _all_of(process: subprocess.Popen[bytes], directory: RunDirectory) -> list[int]:
    """The processes of a run: what its driver has started, and workers that are no descendants of it, as srun's."""
    return sorted(
        {process.pid, *(one.pid for one in psutil.Process(process.pid).children(recursive=True)), *_pids(directory)}
    )


def _steps_s(
    process: subprocess.Popen[bytes], directory: RunDirectory, spans: Sequence[tuple[float, float]]
) -> list[float]:
    """Seconds of a step in each of these spans of time: medians."""

    def ends() -> list[float]:
        with RunReader(directory) as reader:
            return [row.ended_at for row in reader.steps(rank=0)]

    _wait_until(process, lambda: ends()[-1] > spans[-1][1])
    found = ends()
    within = [[end for end in found if since < end < until] for since, until in spans]
    return [statistics.median(later - earlier for earlier, later in itertools.pairwise(some)) for some in within]


def _memory(engine: str, _options: Options) -> Row:
    with _running(_ours(engine), 2, 10**6) as process:
        directory = _trains(process)
        mb = sum(one.memory_full_info().pss for one in _added(engine, process)) / 1e6
        os.kill(_worker(directory), signal.SIGKILL)
    return Row(f"memory-{engine}", mb, "MB", "the bound", 80.0, mb / 80.0, "at most 1.0", "lower")


def _detected(kind: str, number: signal.Signals, engine: str, options: Options) -> Row:
    trials = 1 if options.quick else 5
    ours = statistics.median(_our_detection(engine, number) for _ in range(trials))
    theirs = statistics.median(_their_detection(engine, number) for _ in range(trials))
    ratio = ours / PROMISED_S
    return Row(f"{kind}-{engine}", ours, "s", OWN[engine], theirs, ratio, "at most 1.0 of 10 s", "lower")


def _our_detection(engine: str, number: signal.Signals) -> float:
    """Until the console says what became of the worker."""
    with _running(_ours(engine, quiet=False), 2, 10**6) as process:
        victim = _worker(_trains(process))
        before, began_at = Path("said").stat().st_size, time.perf_counter()
        os.kill(victim, number)
        try:
            while not _named(before):
                if process.poll() is not None and not _named(before):
                    raise SystemExit(f"{process.args!r} ended and named nobody:\n{Path('said').read_text()}")
                time.sleep(LOOK_S)
            return time.perf_counter() - began_at
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)  # one that is stopped would not see that its driver has gone


def _named(before: int) -> bool:
    """Whether rank 1 is lost or suspected by what was printed after so many bytes."""
    words = rb"rank 1 \(host [^)]*\) (?:has been silent|died|was killed)"
    return re.search(words, Path("said").read_bytes()[before:]) is not None


def _their_detection(engine: str, number: signal.Signals) -> float:
    with _running(_theirs(engine, 2, 10**6), 2, 10**6) as process:
        _wait_until(process, lambda: Path("pid-1").exists())
        victim, began_at = int(Path("pid-1").read_text()), time.perf_counter()
        os.kill(victim, number)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CAP_S)
            return time.perf_counter() - began_at
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)  # one that is stopped would not see that it is to end


def _ours(engine: str, *, quiet: bool = True) -> list[str]:
    command = [sys.executable, "-m", "volary", "train", "session.yaml", f"engine={engine}"]
    return [*command, "--quiet"] if quiet else command


def _theirs(engine: str, workers: int, steps: int) -> list[str]:
    script = [PEER, str(steps)]
    if engine == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", *script]
    if engine == "ray":
        return [sys.executable, *script, str(workers)]
    if engine == "slurm":
        return ["srun", f"--ntasks={workers}", "--kill-on-bad-exit=1", "--overlap", sys.executable, *script]
    loose = ["--oversubscribe", "--allow-run-as-root"] if _is_open_mpi() else []
    return ["mpirun", *loose, "-n", str(workers), sys.executable, *script]


def _is_open_mpi() -> bool:
    return "Open MPI" in subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout


def _seconds(command: Sequence[str], workers: int, steps: int) -> float:
    began_at = time.perf_counter()
    with _running(command, workers, steps) as process:
        _wait_for_the_end(process)
        return time.perf_counter() - began_at


@contextlib.contextmanager
def _running(command: Sequence[str], workers: int, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a folder of its own, with a session; afterwards nothing of it runs."""
    home = Path.cwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        Path("session.yaml").write_text(SESSION.format(steps=steps, workers=workers), encoding="utf-8")
        with Path("said").open("wb") as said:
            process = subprocess.Popen(
                command, stdout=said, stderr=said, start_new_session=True, preexec_fn=_end_with_this_process
            )
        try:
            yield process
        finally:
            _end(process)
            os.chdir(home)


def _end_with_this_process() -> None:
    # a launcher that is killed leaves its workers; one that is asked ends them
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asked first: tasks of srun are not its descendants, and only srun ends them."""
    if process.poll() is not None:
        return
    started = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDED_S)
    for one in started:
        with contextlib.suppress(psutil.Error):
            one.kill()
    process.kill()
    process.wait()


def _wait_for_the_end(process: subprocess.Popen[bytes]) -> None:
    if process.wait(WITHIN_S):
        raise SystemExit(f"{process.args!r} ended with {process.returncode}:\n{Path('said').read_text()}")


def _trains(process: subprocess.Popen[bytes]) -> RunDirectory:
    """The run, once it has done some steps."""
    directory = RunDirectory(Path("runs/it").resolve())

    def begun() -> bool:
        if not directory.database.exists():
            return False
        with RunReader(directory) as reader:
            return reader.last_step() > 10

    _wait_until(process, begun)
    return directory


def _wait_until(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not condition():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"{process.args!r} did not begin:\n{Path('said').read_text()}")
        time.sleep(LOOK_S)


def _worker(directory: RunDirectory) -> int:
    """The process of rank 1."""
    return _pids(directory)[2]


def _pids(directory: RunDirectory) -> list[int]:
    """The driver's, and that of each rank."""
    with RunReader(directory) as reader:
        return [int(pid) for pid in json.loads(reader.info()["pids"])]


def _added(engine: str, driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The driver and what it has started, but for the launcher."""
    log = f"{LAUNCHERS[engine]}-workers.log"
    here = psutil.Process(driver.pid)
    helpers = [one for one in here.children() if not any(Path(file.path).name == log for file in one.open_files())]
    return [here, *helpers]


if __name__ == "__main__":
    main()
