"""`volary train` inside a lab."""

from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from volary import Session
from volary.driver.ending import NoWatcher
from volary.errors import BadInput, WorkerFailed, WorkerLost
from volary.lab.errors import TimeIsOver
from volary.lab.ranks import RanksEnded
from volary.lab.training import LabTraining, _first_words, train
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.log import VERDICT_BELOW

pytestmark = pytest.mark.root

SESSION = """
network: softmax
data: {source: digits, batch_size: 30}
train: {steps: 6}
evaluate: {every: 6 steps}
checkpoint: {every: 3 steps}
run: {name: it}
"""


@pytest.fixture
def session():
    Path("session.yaml").write_text(SESSION)
    return Path("session.yaml")


def weights(run):
    return load_file(RunDirectory.existing(run).checkpoints / "step-00000006" / "model.safetensors")


class Once(NoWatcher):
    """Does something as soon as the run has done some updates."""

    def __init__(self, act):
        self.act, self.directory = act, None

    def started(self, directory):
        self.directory = directory

    def look(self):
        with RunReader(self.directory) as reader:
            if self.act and reader.last_step() >= 3:
                act, self.act = self.act, None
                act()


class Watched(NoWatcher):
    def __init__(self):
        self.calls = []

    def started(self, directory):
        self.calls.append(directory.name)

    def ended(self):
        self.calls.append("ended")


@pytest.mark.slow  # two launchers and their drivers; tests/lab/test_links.py has hosts and what is between them
def test_two_hosts_train_what_two_local_workers_do(opened, session):
    lab, watched = opened(hosts=2, rate="1gbit"), Watched()
    ending = train(lab, LabTraining(session), watched)
    assert (ending.state, ending.step, ending.directory.name, watched.calls) == ("finished", 6, "it", ["it", "ended"])
    assert lab.counters(0).sent_bytes > 6 * 10 * 784 * 4, "the gradients went over the link"
    Session.read(session, ["strategy.workers=2", "run.name=local"]).train()
    for name, tensor in weights("local").items():
        torch.testing.assert_close(weights("it")[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_worker_that_fails_is_told_with_its_host_and_keeps_its_log(opened, session):
    Path("mine.py").write_text(
        "import os\nfrom torch import nn\n"
        "class Network(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(784, 10)\n"
        "    def forward(self, x):\n"
        "        if self.training and os.environ['RANK'] == '1':\n"
        "            print('so far')\n            1 / 0\n"
        "        return self.layer(x.flatten(1))\n"
    )
    with pytest.raises(WorkerFailed, match=r"ZeroDivisionError: .*\n  rank 1 \(host h1\) at step 1, in forward"):
        train(opened(hosts=2), LabTraining(session, ["network=mine.py:Network"]), NoWatcher())
    assert RunDirectory.existing("it").log(1).read_text().startswith(f"so far\n{VERDICT_BELOW}\nTraceback")


def test_bad_input_is_refused_before_anything_starts(opened, session):
    lab = opened(hosts=2)
    with pytest.raises(BadInput, match=r"optimizer\.lrr: unknown"):
        train(lab, LabTraining(session, ["optimizer.lrr=1"]), NoWatcher())
    assert not Path("runs").exists()


def test_a_run_whose_name_is_taken_is_refused_with_the_reason(opened, session):
    RunDirectory.create(Path("runs"), "it", "", "")
    with pytest.raises(BadInput, match="the run runs/it exists already"):
        train(opened(hosts=1), LabTraining(session), NoWatcher())


LONG = ["train.steps=100000", "checkpoint.every=20 steps", "evaluate.every=never"]
SOON = ["strategy.suspect_after_s=1", "strategy.give_up_after_s=2"]


@pytest.mark.slow
def test_a_link_over_which_a_mean_takes_longer_than_a_silence_may_is_slow_and_not_cut(opened, session):
    Path("mine.py").write_text(
        "import time\nfrom torch import nn\n"
        "class Network(nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(784, 550), nn.ReLU(), nn.Linear(550, 10))\n"
        "    def forward(self, x):\n"
        "        time.sleep(0.2)  # so that it is known how long all wait for each other in a step: hardly\n"
        "        return super().forward(x)\n"
    )
    local = "strategy.consistency={name: local, period: 20}"
    slow = ["network=mine.py:Network", local, "train.steps=20", "evaluate.every=never", "checkpoint.every=never"]
    lab = opened(hosts=2, rate="500kbit")  # 1.7 MB take 28 s
    ending = train(lab, LabTraining(session, slow), NoWatcher())
    assert (ending.state, ending.step) == ("finished", 20)
    with RunReader(ending.directory) as reader:
        assert max(row.exchange_s for row in reader.steps()) > 10, "no mean took longer than a silence may"


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_named_and_the_lab_ends(opened, session):
    def stop():
        for process in psutil.Process().children(recursive=True):
            if process.cmdline()[1:3] == ["-m", "volary.worker"] and process.environ()["RANK"] == "1":
                process.suspend()

    with pytest.raises(WorkerLost, match=r"rank 1 \(host h1, .* silent for"):
        train(opened(hosts=2), LabTraining(session, LONG), Once(stop))


@pytest.mark.slow
def test_a_lab_with_a_host_that_is_cut_off_is_stopped_in_order_and_nobody_waits_for_that_host(
    opened, session, monkeypatch
):
    def cut_and_interrupt():
        lab.cut(1)
        raise KeyboardInterrupt

    monkeypatch.setattr("volary.lab.training.GRACE_S", 10 * 60.0)  # longer than this test may take
    lab, served = opened(hosts=2), ["strategy.exchange=server", "strategy.consistency=ssp"]
    ending = train(lab, LabTraining(session, [*LONG, *served]), Once(cut_and_interrupt))
    assert ending.state == "stopped"
    assert Checkpoints(ending.directory.checkpoints).steps()[-1] == ending.step


class UntilGone(Once):
    """Cuts host 1 off, and interrupts once the worker there has said why it ended."""

    gone = False

    def look(self):
        super().look()
        if not self.act and not self.gone:
            self.gone = "the driver has not answered for " in self.directory.log(1).read_text()
            if self.gone:
                raise KeyboardInterrupt


@pytest.mark.slow
def test_a_worker_on_the_cut_side_ends_by_itself_while_the_run_goes_on(opened, session, monkeypatch):
    monkeypatch.setattr("volary.lab.training.GRACE_S", 10 * 60.0)  # longer than this test may take
    lab, served = opened(hosts=2), ["strategy.exchange=server", "strategy.consistency=ssp"]
    ending = train(lab, LabTraining(session, [*LONG, *SOON, *served]), UntilGone(lambda: lab.cut(1)), timeout_s=300)
    assert ending.state == "stopped"
    with RunReader(ending.directory) as reader:
        assert [event.rank for event in reader.events(kind="lost")] == [1]


@pytest.mark.slow
def test_a_host_that_is_cut_off_is_lost_and_the_run_goes_on_with_it_restored(opened, session):
    lab = opened(hosts=2, rate="1mbit")
    with pytest.raises(WorkerLost, match=r"rank 1 \(host h1, .* silent for"):
        train(lab, LabTraining(session, [*LONG, *SOON]), Once(lambda: lab.cut(1)))
    run = RunDirectory.existing("it")
    with pytest.raises(BadInput, match="is a run of 2 workers, and this lab has 4 ranks"):
        train(lab, LabTraining(run=run), NoWatcher(), procs=2)
    lab.restore(1)
    with pytest.raises(TimeIsOver, match="stopped after step"):
        train(lab, LabTraining(run=run), NoWatcher(), timeout_s=60)  # a start takes what the machine takes


CUT = """
import os
import threading
from pathlib import Path
from torch import nn

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 10)
        if os.environ["RANK"] == "1":
            Path("building").touch()
            threading.Event().wait()

    def forward(self, x):
        return self.layer(x.flatten(1))
"""


class WhileItStarts(Once):
    """Does something as soon as rank 1 builds its network."""

    def look(self):
        if self.act and Path("building").exists():
            act, self.act = self.act, None
            act()


@pytest.mark.slow
def test_a_host_that_is_cut_off_while_its_worker_starts_is_named(opened, session):
    Path("mine.py").write_text(CUT)
    lab = opened(hosts=2)
    with pytest.raises(WorkerLost, match=r"^rank 1 \(host h1, process \d+\) had been silent for \d+ s, and then its"):
        train(lab, LabTraining(session, ["network=mine.py:Network", *LONG, *SOON]), WhileItStarts(lambda: lab.cut(1)))


@pytest.mark.slow
def test_a_host_that_is_cut_off_before_its_worker_has_joined_is_named(opened, session):
    lab = opened(hosts=2)
    with pytest.raises(WorkerLost, match=r"^rank 1 \(host h1\) did not come within 10 s; before it joined the run"):
        train(lab, LabTraining(session, [*LONG, *SOON, "strategy.startup_timeout_s=10"]), NoWatcher(), at=["0s:cut:1"])


def test_a_run_whose_driver_left_no_word_ends_with_the_words_of_the_rank_that_failed_first(opened, session, tmp_path):
    run = RunDirectory.create(tmp_path / "runs", "it", "", "")
    (said := tmp_path / "said").write_text("no space left\n")
    with said.open("rb") as empty, said.open("rb") as output:
        words = _first_words(opened(hosts=2), run, RanksEnded(4, 1, [None, 4]), [empty, output])
    assert words == "rank 1 (host h1) ended with status 4, and its run's driver left no word\n  | no space left"
