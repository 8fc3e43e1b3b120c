"""How much longer is the longest step around a checkpoint than the median step?

    python benchmarks/save_stall.py [--quick] [--only NAME] [--json FILE]

Two workers on this machine train AlexNet-like (34 million parameters, 137 MB, nearly all in two layers), 32 samples
each, with Adam, and save 411 MB to the local disk every 100 steps. `save-stall`: a session, whose workers write half
each; `save-stall-own`: a loop of one's own, likewise. A step is from the end of the one before to its own
end, on rank 0; the first ten do not count. ours: the longest of the ten steps after a save; theirs: the median of all
steps. The longest of the ten steps before a save is printed beside it: no save has to do with that one. What the last
save of the run takes, which training waits for, is no part of it; what has a period of its own, as the comparing of
replicas, is off. --quick: saves every 40 steps.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _in_lab import HERE
from _memory_runs import CLASSES
from _report import Options, Row, arguments, report
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

SHARE, WARM, AROUND, SAVES = 32, 10, 10, 3
OFF = ["compare_replicas=never", "histograms=never"]
SESSION = """\
network: {networks}:alexnet_like
data: {{source: {{name: synthetic, shape: [3, 32, 32], classes: {classes}, samples: {samples}}}, batch_size: {samples}}}
optimizer: {{name: adam, lr: 0.0001}}
train: {{steps: {steps}, device: cpu, compare_replicas: never, histograms: never, trace: never}}
evaluate: {{every: never}}
checkpoint: {{every: {every} steps}}
strategy: {{workers: 2}}
run: {{name: it}}
"""
OWN = """\
import sys, torch
sys.path.insert(0, {here!r})
from _networks import alexnet_like
import volary

worker, model = volary.init(), alexnet_like({classes})
optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)
model, optimizer = worker.distribute(model, optimizer)
worker.restore(model=model, optimizer=optimizer)
images, labels = torch.randn({share}, 3, 32, 32), torch.randint({classes}, ({share},))
for step in range(1, {steps} + 1):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    if step % {every} == 0:
        worker.save(model=model, optimizer=optimizer)
"""


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, ["save-stall", "save-stall-own"])
    rows = [_row(name, options) for name in ("save-stall", "save-stall-own") if options.wants(name)]
    report(rows, options.json)


def _row(name: str, options: Options) -> Row:
    every = 40 if options.quick else 100
    with tempfile.TemporaryDirectory() as folder:
        values = {"steps": every * SAVES + AROUND, "every": every, "classes": CLASSES}
        if name == "save-stall":
            text = SESSION.format(networks=HERE / "_networks.py", samples=2 * SHARE, **values)
            command = ["train", "session.yaml", "--quiet"]
            Path(folder, "session.yaml").write_text(text, encoding="utf-8")
        else:
            Path(folder, "train.py").write_text(OWN.format(here=str(HERE), share=SHARE, **values), encoding="utf-8")
            command = ["launch", "--quiet", "strategy.workers=2", "run.name=it", *OFF, "train.py"]
        subprocess.run([sys.executable, "-m", "volary", *command], cwd=folder, check=True)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            ends = [row.ended_at for row in reader.steps(after=0) if row.rank == 0]
    took = {step: ends[step - 1] - ends[step - 2] for step in range(2, len(ends) + 1)}
    around = [took[save * every + after] for save in range(1, SAVES + 1) for after in range(1, AROUND + 1)]
    before = [took[save * every - ahead] for save in range(1, SAVES + 1) for ahead in range(AROUND)]
    median = statistics.median(seconds for step, seconds in took.items() if step > WARM)
    print(f"  {name}: {median:.3f} s a step, at most {max(around):.3f} s after a save, {max(before):.3f} s before one")
    return Row(name, max(around), "s", "the median step", median, max(around) / median, "at most 1.2", "lower")


if __name__ == "__main__":
    main()
