"""Workers that end by themselves: by an error, by leaving, before they joined."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from faults._running import events, session, state
from volary.cli.command.main import run as command
from volary.run.database.reader import RunReader


def test_error_of_one_worker_is_shown_once_with_its_traceback_and_the_others_in_a_line(launch):
    run = launch("train", session(workers=3, fault="raise"))  # more workers than cores where there are two
    ended = run.ended()
    lines = ended.err.splitlines()
    assert ended.status == 3
    assert re.fullmatch(r"net.py:\d+ in raise_an_error: ValueError: boom in user code", lines[0])
    assert re.fullmatch(r"  rank 1 \(host .+\) at step 5, in forward", lines[1])
    assert re.fullmatch(r"  \| net.py:\d+ in forward", lines[2])
    assert lines[3] == "  |     x = x + FAULTS[self.fault]()"
    assert lines[5] == '  |     raise ValueError("boom in user code")'
    assert re.fullmatch(r"  \| \.\.\. \d+ frames of volary(, python)? and torch", lines[6])
    assert lines[7:] == [
        "  rank 0, 2 ended because of it",
        "whole traceback: runs/it/logs/worker-1.log",
        "once that is fixed, begin again, as there is no checkpoint yet: volary resume it",
    ]
    assert run.directory.log(1).read_text().count("Traceback") == 1
    assert state(run.directory) == "failed"
    with RunReader(run.directory) as reader:
        assert reader.info()["message"].splitlines() == lines[:-2], "no path is stored: the run may be moved"


@pytest.mark.slow
def test_same_error_on_all_workers_is_one_line_with_a_count(launch):
    run = launch("train", session(fault="raise", ranks=[0, 1]))
    ended = run.ended()
    assert ended.status == 3
    assert ended.err.splitlines()[1].startswith("  rank 0 (host ")
    assert ended.err.count("raise ValueError") == 1
    assert ended.err.splitlines()[-3] == "  1 other rank ended with the same error"


@pytest.mark.slow  # as one that is killed; tests/driver/test_judge.py has the verdict
@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("os._exit", 4, r"rank 1 \(host .*exited with status 7 without reporting a reason; last step "),
        ("sys.exit", 3, r"net.py:\d+ in leave: SystemExit: 0\n  rank 1 \(host "),
    ],
)
def test_worker_that_leaves_by_itself_is_named(launch, fault, status, said):
    ended = launch("train", session(fault=fault)).ended()
    assert ended.status == status
    assert re.match(said, ended.err), ended.err


DATA = """
import torch

class Samples:
    classes = 4

    def __len__(self):
        return 99

    def __getitem__(self, index):
        {what}
        return torch.zeros(16), index % 4

def of(split):
    return Samples()
"""


@pytest.mark.slow  # tests/train/test_corrupt.py has such samples
@pytest.mark.parametrize(
    ("what", "first", "also"),
    [
        (
            "if index == 80: return torch.zeros(16), 12",
            "the target of sample 80 is 12; accepted: 0 to 3, since the network gives 4 outputs, one for each class",
            "  rank ",
        ),
        (
            "if index == 80: 1 / 0",
            "data.py:11 in __getitem__: ZeroDivisionError: division by zero",
            "  | while sample 80",
        ),
    ],
    ids=["target", "error"],
)
def test_bad_sample_in_the_middle_of_the_data_is_named_and_is_no_refusal(launch, what, first, also):
    Path("data.py").write_text(DATA.format(what=what))
    file = session(workers=1)
    text = Path(file).read_text()
    source = "source: {name: synthetic, shape: [16], classes: 4, samples: 256, kind: blobs}, batch_size: 33"
    assert source in text
    Path(file).write_text(text.replace(source, "source: data.py:of, batch_size: 33, shuffle: false"))
    ended = launch("train", file).ended()
    lines = ended.err.splitlines()
    assert (ended.status, lines[0]) == (3, first), ended.err
    assert " at step 3, in " in lines[1]
    assert any(line.startswith(also) for line in lines)
    assert lines[-1] == "once that is fixed, begin again, as there is no checkpoint yet: volary resume it"


@pytest.mark.slow  # tests/driver/test_start.py has such refusals
def test_user_code_that_cannot_be_imported_is_refused_in_a_sentence(launch):
    file = session()
    Path("net.py").write_text("import no_such_package\n")
    ended = launch("train", file).ended()
    assert ended.status == 2
    assert "net.py" in ended.err
    assert "no_such_package" in ended.err
    assert "Traceback" not in ended.err
    assert not list(Path("runs").iterdir()), "a refused run leaves its name free"


@pytest.mark.slow  # tests/train/test_resume.py has it in process
def test_loss_that_is_not_a_number_stops_the_run_with_the_step_and_the_last_good_checkpoint(launch):
    run = launch("train", session(fault="nan", at=25))
    ended = run.ended()
    assert ended.status == 6
    assert ended.err.splitlines() == [
        "the loss of rank 1 is NaN or infinite at step 25; last good checkpoint: step 20",
        "resumed with the same settings it diverges again; lower the learning rate: "
        "volary train runs/it/session.yaml optimizer.lr=0.025 run.name=it-2",
        "or from step 20: volary resume it optimizer.lr=0.025",
        "or clip gradients (train.clip_norm=1), or leave such batches out (train.on_nonfinite=skip)",
    ]
    assert [event.data["step"] for event in events(run.directory, "checkpoint")] == [20]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert command(["show", "it"]) == 0
    assert "volary resume it\n" not in shown.getvalue(), "it would come to the same"
    assert "volary resume it optimizer.lr=0.025" in shown.getvalue()
