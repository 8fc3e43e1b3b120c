"""How soon does synchronous training go on when a worker is killed, what does being able to cost, what do shares of the
batch gain that follow the speed of workers, and what do members cost that come and go far from each other?

    python benchmarks/members.py [--quick] [--only NAME] [--json FILE]
    python benchmarks/members.py --schedules N [--own] [--seed FIRST] [--json FILE]

Four workers on this machine train two fully connected layers (137 thousand parameters), 32 samples each, with SGD.

- `recovery`: one of them gets SIGKILL after 50 steps. Measured are the seconds from there to the end of the next step:
  of a run with `strategy.recover=memory`, and of DDP below torchrun, which starts all workers again from the state that
  rank 0 saves each step. Who is killed is drawn, alike for both. 5 pairs, --quick one.
- `recovery-spare`: the same with `strategy.spares=1`: a fifth worker, ready, takes the place of the one that is killed.
- `calm`: nobody is killed. Measured is the median step of rank 0, with `strategy.recover=memory` and without. 5 pairs
  of runs of 400 steps, --quick two.
- `calm-memory`: the most that one of two workers holds above torch until its last step, as they train AlexNet-like
  (137 MB) with momentum, with `strategy.recover=memory` and without (`memory.py` says how). 3 pairs of 20
  steps, --quick one of 6.
- `calm-sharded`: the same as `calm` with `strategy.partition=sharded`, where copies of shares are sent in each step.
- `balance`, `balance-bound`: workers whose forward takes 1 ms for each sample, and one of them 3 ms. Measured are
  samples per second once shares have followed, with `strategy.balance=auto`: against equal shares, and against what
  these speeds come to if nothing but forward took time. 3 pairs, --quick one.

- `internet`: on four hosts of a lab (`volary lab`; needs root), with 50 ms between any two, 20 Mbit/s and 5 % of
  packets lost, workers take 32 steps of their own between two means (`consistency: local`). Every 30 s a worker comes
  and another one leaves. Measured are samples per second, against the same run whose workers stay. 1 pair of 240 s
  each, --quick of 120 s. A forward waits 5 ms for each sample.

With `--schedules N` it asks instead: do members that come and go at random break a promise? N runs of 10 strategies
with `strategy.recover=memory` have workers join, leave, be killed and be stopped at random steps. Looked at is whether
each ends, with a code that fits; that every sample of every epoch was learnt from once; and that nothing is left, no
process, shared memory, temporary file or draft. With `--own` they are of loops of one's own, of 8 strategies, whose
replicas end equal where the model says so. The folder of a schedule that broke a promise stays below
`member-schedules`, and the script ends with 1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _in_lab import HERE
from _member_schedules import play
from _members_far import samples_per_s
from _memory_runs import Case, held_by_ours
from _report import Options, Row, alternated, arguments, compared, paired, report
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

WORKERS, SHARE, KILL_AT, STEPS, WARM = 4, 32, 50, 400, 20
WITHIN_S, LOOK_S = 300.0, 0.01
SAMPLE_S, SLOWER, BALANCE_STEPS, BALANCE_SEEN = 0.001, 3, 160, 60
SESSION = f"""\
network: {{layers: [{{linear: {{outputs: 512}}}}, relu: {{}}, {{linear: {{outputs: classes}}}}]}}
data: {{source: {{name: synthetic, shape: [256], classes: 10, samples: 12800}}, batch_size: {WORKERS * SHARE}}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
train: {{steps: STEPS, device: cpu}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy: {{workers: {WORKERS}}}
run: {{name: it}}
"""


def main() -> None:
    """Run the rows that are asked for."""
    names = ["recovery", "recovery-spare", "calm", "calm-memory", "calm-sharded", "balance", "internet"]
    options = arguments(__doc__, names, _own_options)
    if options.more.schedules:
        seeds = range(options.more.seed, options.more.seed + options.more.schedules)
        rows = [_of_schedules(seeds, own=options.more.own)]
        report(rows, options.json)
        sys.exit(rows[0].value > 0)
    made = {
        "recovery": _recovery,
        "recovery-spare": _with_spare,
        "calm": _calm,
        "calm-memory": _calm_memory,
        "calm-sharded": _calm_in_shares,
        "balance": _balance,
        "internet": _internet,
    }
    rows = [row for name, make in made.items() if options.wants(name) for row in make(options)]
    report(rows, options.json)


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schedules", type=int, metavar="N", default=0, help="play N random schedules of members")
    parser.add_argument("--seed", type=int, metavar="FIRST", default=0, help="the first of them")
    parser.add_argument("--own", action="store_true", help="of loops of one's own")


def _of_schedules(seeds: range, *, own: bool) -> Row:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, by those below, too
    folder, broken = Path("member-schedules"), 0
    for seed in seeds:
        played = play(seed, folder, own=own)
        print(played, flush=True)
        broken += bool(played.broken)
    if not broken:
        folder.rmdir()
    share = broken / len(seeds)
    return Row("schedules", broken, f"broken of {len(seeds)}", "the promise", 0, share, "at most 0.00", "lower")


def _recovery(options: Options) -> list[Row]:
    pairs = 1 if options.quick else 5
    ours, theirs = (random.Random(1) for _ in range(2))
    found = paired(lambda: _ours(ours.randrange(WORKERS)), lambda: _theirs(theirs.randrange(WORKERS)), pairs)
    peer = "torchrun's restart of DDP, which saves each step"
    wanted = "at most 10 s, and 0.3 of torchrun's"
    return [Row("recovery", found.ours, "s", peer, found.theirs, found.ratio, wanted, "lower")]


def _with_spare(options: Options) -> list[Row]:
    pairs = 1 if options.quick else 5
    ours, theirs = (random.Random(1) for _ in range(2))
    spare = "strategy.spares=1"
    found = paired(lambda: _ours(ours.randrange(WORKERS), spare), lambda: _ours(theirs.randrange(WORKERS)), pairs)
    peer = "one worker less"
    return [Row("recovery-spare", found.ours, "s", peer, found.theirs, found.ratio, "at most 3 s", "lower")]


def _calm(options: Options) -> list[Row]:
    return [_undisturbed(options, "calm", "at most 1.01")]


def _calm_memory(options: Options) -> list[Row]:
    steps, pairs = (6, 1) if options.quick else (20, 3)
    wanted, peer = "at most 1.01", "recover=checkpoint"
    ours, theirs = (Case("torch", "none", wanted, recover=recover) for recover in ("memory", "checkpoint"))
    found = compared(alternated(partial(held_by_ours, ours, steps), partial(held_by_ours, theirs, steps), pairs))
    return [Row("calm-memory", found.ours / 2**20, "MiB", peer, found.theirs / 2**20, found.ratio, wanted, "lower")]


def _calm_in_shares(options: Options) -> list[Row]:
    return [_undisturbed(options, "calm-sharded", "for information", "strategy.partition=sharded")]


def _undisturbed(options: Options, name: str, wanted: str, *settings: str) -> Row:
    pairs = 2 if options.quick else 5
    found = paired(lambda: _step_s("memory", *settings), lambda: _step_s("checkpoint", *settings), pairs)
    return Row(name, found.ours, "s", "recover=checkpoint", found.theirs, found.ratio, wanted, "lower")


def _balance(options: Options) -> list[Row]:
    found = paired(lambda: _samples_per_s("auto"), lambda: _samples_per_s("equal"), 1 if options.quick else 3)
    bound = (WORKERS - 1) / SAMPLE_S + 1 / (SLOWER * SAMPLE_S)
    equal = Row("balance", found.ours, "samples/s", "equal shares", found.theirs, found.ratio, "at least 1.8", "higher")
    limit = found.ours / bound
    return [
        equal,
        Row("balance-bound", found.ours, "samples/s", "forward alone", bound, limit, "at least 0.9", "higher"),
    ]


def _internet(options: Options) -> list[Row]:
    window_s = 120.0 if options.quick else 240.0
    calm = samples_per_s(window_s, changing=False)
    found = samples_per_s(window_s, changing=True)
    return [Row("internet", found, "samples/s", "workers stay", calm, found / calm, "at least 0.88", "higher")]


def _samples_per_s(balance: str) -> float:
    """Samples that all workers learn from in a second, over the last steps of a run."""
    with tempfile.TemporaryDirectory() as folder:
        net = f"{{name: '{HERE / '_paced_net.py'}:Net', sample_s: {SAMPLE_S}, slower: {SLOWER}}}"
        process = _started(folder, BALANCE_STEPS, f"strategy.balance={balance}", f"network={net}")
        if process.wait() != 0:
            raise SystemExit(f"a run with balance={balance} failed")
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            after = BALANCE_STEPS - BALANCE_SEEN
            took = [row.step_s for row in reader.steps(after=after) if row.rank == 0]
            shares = [event.data["samples"] for event in reader.events(kind="balanced")]
    found = WORKERS * SHARE / statistics.median(took)
    print(f"  balance={balance}: {found:.0f} samples/s, shares {shares[-1] if shares else 'equal'}", flush=True)
    return found


def _ours(rank: int, *settings: str) -> float:
    """Seconds from the end of this worker to the end of the next step, once a spare one is ready if there is any."""
    with tempfile.TemporaryDirectory() as folder:
        process = _started(folder, 10**6, "strategy.recover=memory", *settings)
        directory = RunDirectory(Path(folder, "runs", "it"))
        try:
            _wait_until(lambda: directory.database.exists() and _newest(directory) >= KILL_AT, process)
            _wait_until(lambda: not settings or _ready(directory), process)
            with RunReader(directory) as reader:
                pids = reader.info()["pids"].strip("[]").split(",")
            killed = time.time()
            os.kill(int(pids[1 + rank]), signal.SIGKILL)
            _wait_until(lambda: _recovered(directory) is not None, process)
            step = _recovered(directory)
            assert step is not None
            _wait_until(lambda: _newest(directory) > step, process)
            with RunReader(directory) as reader:
                ends = [row.ended_at for row in reader.steps(after=step) if row.step == step + 1]
        finally:
            process.terminate()
            process.wait()
    print(f"  recover=memory{' '.join(['', *settings])}, rank {rank} killed: {max(ends) - killed:.2f} s", flush=True)
    return max(ends) - killed


def _ready(directory: RunDirectory) -> bool:
    """Whether a spare worker is."""
    with RunReader(directory) as reader:
        return any(reader.events(kind="spare"))


def _recovered(directory: RunDirectory) -> int | None:
    """The step that the others have gone on from."""
    with RunReader(directory) as reader:
        return next((event.step for event in reader.events(kind="recovered")), None)


def _newest(directory: RunDirectory) -> int:
    with RunReader(directory) as reader:
        return reader.last_step()


def _theirs(rank: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={WORKERS}", "--max-restarts=1"]
        command += ["--standalone", str(HERE / "_elastic_ddp.py"), folder, str(10**6), str(SHARE)]
        # the agent's own store still has the addresses of the workers before, which gloo would try again and again
        variables = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        steps = Path(folder, "steps")

        def ends() -> list[tuple[int, float]]:
            lines = steps.read_text(encoding="utf-8").splitlines() if steps.exists() else []
            whole = (line.split() for line in lines)
            return [(int(words[0]), float(words[1])) for words in whole if len(words) == 2]

        try:
            _wait_until(lambda: bool(ends()) and ends()[-1][0] >= KILL_AT, process)
            killed = time.time()
            first = int(Path(folder, f"pid-{rank}").read_text(encoding="utf-8"))
            os.kill(first, signal.SIGKILL)
            pid = Path(folder, f"pid-{rank}")
            _wait_until(lambda: pid.read_text(encoding="utf-8") not in ("", str(first)), process)
            again = pid.stat().st_mtime
            _wait_until(lambda: ends()[-1][1] > again, process)
            took = next(at for _, at in ends() if at > again) - killed
        finally:
            process.terminate()
            process.wait()
    print(f"  torchrun, rank {rank} killed: {took:.2f} s", flush=True)
    return took


def _step_s(recover: str, *settings: str) -> float:
    """The median step of rank 0, seconds."""
    with tempfile.TemporaryDirectory() as folder:
        if _started(folder, STEPS, f"strategy.recover={recover}", *settings).wait() != 0:
            raise SystemExit(f"a run with recover={recover} failed")
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            took = [row.step_s for row in reader.steps(after=WARM) if row.rank == 0]
    print(f"  recover={' '.join([recover, *settings])}: {1000 * statistics.median(took):.2f} ms a step", flush=True)
    return statistics.median(took)


def _started(folder: str, steps: int, *settings: str) -> subprocess.Popen[bytes]:
    Path(folder, "session.yaml").write_text(SESSION.replace("STEPS", str(steps)), encoding="utf-8")
    command = [sys.executable, "-m", "volary", "train", "session.yaml", *settings, "--quiet"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > until or process.poll() is not None:
            raise SystemExit(f"{process.args!r} did not come so far")
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
