"""Averages of weights on the command line: measured and exported when they are asked for."""

import json

import pytest
import torch
from safetensors.torch import load_file

from train.test_averages import EMA, averaged, in_checkpoint
from volary.run.directory import RunDirectory


@pytest.mark.slow  # a run of real processes, for two verbs
def test_a_run_s_average_is_evaluated_and_exported_if_asked(volary, tmp_path):
    (tmp_path / "session.yaml").write_text(averaged(EMA, {"workers": 2}).to_yaml())
    assert volary("train", "session.yaml", "evaluate.every=12 steps", "run.name=it").status == 0
    average, raw = in_checkpoint(RunDirectory(tmp_path / "runs" / "it").checkpoints)
    losses = set()
    for flags, wanted in ((["--average"], average), ([], raw)):
        assert volary("export", "it", *flags, "-o", f"{len(flags)}.safetensors").status == 0
        exported = load_file(tmp_path / f"{len(flags)}.safetensors")
        assert all(torch.equal(exported[name], one) for name, one in wanted.items())
        losses.add(json.loads(volary("evaluate", "it", *flags, "--json").out)["metrics"]["loss"])
    assert len(losses) == 2


NET = "import torch\n\n\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(4, 2)\n"
LOOP = """\
import torch
from torch.utils.data import TensorDataset

import volary
from net import Net

worker, model = volary.init(), Net()
model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
average = worker.average(model, decay=0.5)
kept = {"model": model, "optimizer": optimizer, "mean": average}
worker.restore(**kept)
feed = worker.feed(TensorDataset(torch.randn(32, 4), torch.randint(2, (32,))), batch_size=8)
for _ in worker.epochs(2):
    for inputs, labels in feed:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    with average.applied():
        if worker.is_first:
            torch.save(model.state_dict(), "averaged.pt")
    worker.save(**kept)
"""


@pytest.mark.slow  # runs of real processes
@pytest.mark.parametrize("strategy", ["strategy.exchange=server", "strategy.exchange=allreduce"])
def test_the_average_that_a_loop_of_ones_own_saves_is_exported_if_asked(volary, tmp_path, strategy):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(LOOP)
    launched = volary("launch", "network=net.py:Net", "strategy.workers=2", strategy, "run.name=it", "train.py")
    assert launched.status == 0, launched.err
    exported = volary("export", "it", "--average", "-o", "it.safetensors")
    assert exported.status == 0, exported.err
    wanted = torch.load(tmp_path / "averaged.pt")
    found = load_file(tmp_path / "it.safetensors")
    assert all(torch.equal(found[name], one) for name, one in wanted.items())
    assert volary("export", "it", "-o", "raw.safetensors").status == 0
    raw = load_file(tmp_path / "raw.safetensors")
    assert not any(torch.equal(raw[name], one) for name, one in wanted.items())
