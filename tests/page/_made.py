"""Runs as a driver writes them, with numbers that tests know."""

from __future__ import annotations

from monitor._made_runs import evaluated, finished, journal, new_run, rows, started, whole_run
from volary.run.database.counts import CountRow
from volary.run.database.histograms import Histogram
from volary.run.database.network import GraphLayer, LayerGraph
from volary.run.database.spans import Span
from volary.run.database.traffic import Traffic
from volary.run.database.usage import Usage
from volary.run.directory import RunDirectory
from volary.run.verdict import Verdict

WAYS = [
    ["0.weight", "exact", 10368, 0.00089, "nothing else takes it"],
    ["10.weight", "factors", 1572864, 0.158, "quicker than as it is"],
]
CONFUSION = [[17, 3], [1, 9]]  # the newest; the first list is of targets of class 0
SLOW = "rank 1 is the slowest: others wait 41% of each step for it; its data takes 52 ms where the others take 3 ms"


def made_runs() -> None:
    """In `runs/` here: one that ended well, one with a slow worker, one that failed, and one in a sweep."""
    whole_run("lenet-digits-1")
    slow_run()
    failed_run()
    moved = whole_run("lr-0.1", steps=20)
    (moved.path.parent / "sweep").mkdir()
    moved.path.rename(moved.path.parent / "sweep" / "lr-0.1")


def slow_run() -> RunDirectory:
    directory = new_run("slow-1")
    directory.session.write_text(directory.session.read_text().replace("lr: 0.05", "lr: 0.02"))
    with journal(directory) as run:
        started(run, steps=200)
        run.steps(rows(1, 100, slow_s=0.1))
        evaluated(run, 50, 0.7, loss=0.9)
        evaluated(run, 100, 0.8, loss=0.6)
        for step, counts in ((50, [[1, 9], [9, 1]]), (100, CONFUSION)):
            run.metrics(
                step, {f"confusion[{of},{taken}]": float(counts[of][taken]) for of in (0, 1) for taken in (0, 1)}
            )
            run.event("text", 0, step, of_step=step, prompt="To be", text=f"\nor {step}\x1b[0m")
        run.note(data_names='[["ant", "bee"], 2, []]')
        run.note(parameters=1000)
        run.event("ways", 0, 1, bytes_per_s=12 * 2**20, table=[[*row[:1], "exact", *row[2:]] for row in WAYS])
        run.event("ways", 0, 3, bytes_per_s=12 * 2**20, table=WAYS)
        run.event("slow", 1, 40, reason=SLOW, cause="data", share=0.41)
        run.counts(
            [CountRow("staleness", 0, 0, 0, 30), CountRow("staleness", 1, 0, 2, 10), CountRow("late", 0, 0, 0, 3)]
        )
        for rank in (0, 1):
            run.traffic(rank, [Traffic("none", "ring", 60_000, 60_000, 120_000)])
            run.traffic(rank, [Traffic("onebit", "to owners and back", 40_000, 40_000, 2_560_000)])
        run.spans(spans(90))
        run.network(layers())
        run.usage(usage())
        run.histograms(histograms())
        run.note(hosts='{"0": "ant", "1": "bee"}')
        finished(run, 100, "stopped")
    return directory


def histograms() -> list[Histogram]:
    """Histograms of two parameters every 10 steps; what a step changes of the second is far too much."""
    found = []
    for step in range(10, 101, 10):
        counts = tuple(20 - abs(place - 20) for place in range(41))
        for name, share in (("0.weight", 0.002), ("10.weight", 0.05)):
            wide = 0.1 + step / 500
            found.append(Histogram(step, "weight", name, -wide, wide, 0.1, counts))
            found.append(Histogram(step, "update", name, -share / 10, share / 10, 0.1 * share, counts))
        found.append(Histogram(step, "gradient", "0.weight", -0.3, 0.4, 0.2, counts))
    return found


def layers() -> LayerGraph:
    """Two layers with parameters and one without, of which the last uses both."""
    return LayerGraph(
        layers=[
            GraphLayer("0", "Conv2d", ["input"], [20, 24, 24], 576_000, 0.003),
            GraphLayer("1", "ReLU", ["0"], [20, 24, 24], 0, 0.0001),
            GraphLayer("10", "Linear", ["0", "1"], [10], 7_864_320, 0.001),
        ],
        parameters={"0.weight": 500, "0.bias": 20, "10.weight": 393_216},
        samples=2,
        product_per_s=2e11,
    )


def usage() -> list[Usage]:
    """Two workers on two machines, every two seconds."""
    found = []
    for look in range(30):
        for rank in (0, 1):
            values = {
                "cpu": 1 + rank * 0.5,
                "memory_bytes": (300 + look) * 2.0**20,
                "machine_cpu": 2.0 + rank,
                "machine_cores": 8.0,
                "machine_memory_bytes": 3 * 2.0**30,
                "machine_memory_total_bytes": 16 * 2.0**30,
                "machine_sent_bytes_per_s": 5e6,
                "machine_received_bytes_per_s": 4e6,
                "gpu0": 0.87,
                "gpu0_memory": 0.5,
                "queue_driver": 1.0,
            }
            found += [Usage(1000.0 + 2 * look, rank, name, value) for name, value in values.items()]
    return found


def spans(step: int) -> list[Span]:
    def of(rank: int, kind: str, name: str, start_ms: float, end_ms: float, size: int = 0) -> Span:
        return Span(rank, step, kind, name, 1000 + start_ms / 1000, 1000 + end_ms / 1000, size)

    return [
        span
        for rank in (0, 1)
        for span in (
            of(rank, "phase", "forward", 0, 30),
            of(rank, "phase", "backward", 30, 75),
            of(rank, "ready", "10.weight", 30, 40),
            of(rank, "exchange", "10.weight", 41, 60, 1572864),
            of(rank, "update", "10.weight", 62, 64),
        )
    ]


def failed_run() -> RunDirectory:
    directory = new_run("failed-1")
    reason = "my_net.py:15 in forward: RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    with journal(directory) as run:
        run.start_attempt(0)
        started(run)
        run.steps(rows(1, 5))
        finished(run, 5, "failed", f"{reason}\n  rank 1 (host bee) at step 5, in forward")
    for rank in (0, 1):
        directory.log(rank).write_text(
            "loading the data\n"
            + (f"Traceback (most recent call last):\n  my_net.py:15\nRuntimeError: {reason}\n" * rank)
        )
    Verdict(rank=1, outcome="failed", step=5, phase="forward", reason=reason, host="bee").write(directory.verdicts)
    return directory
