"""Workers that end by themselves: by an error, by leaving, before they joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults._running import events, session, state


def test_error_of_one_worker_is_shown_once_with_its_traceback_and_the_others_in_a_line(launch):
    run = launch("train", session(workers=3, fault="raise"))  # more workers than cores where there are two
    ended = run.ended()
    lines = ended.err.splitlines()
    assert ended.status == 3
    assert lines[0].startswith("rank 1 (host ")
    assert lines[0].endswith(") failed at step 5, in forward: ValueError: boom in user code")
    assert ended.err.count("Traceback") == 1
    assert lines[-4:] == [
        "  | ValueError: boom in user code",
        "  rank 0, 2 ended because of it",
        f"  log: {run.directory.log(1)}",
        f"go on: volary resume {run.directory.path}",
    ]
    assert "in raise_an_error" in ended.err
    assert state(run.directory) == "failed"


@pytest.mark.slow
def test_same_error_on_all_workers_is_one_line_with_a_count(launch):
    run = launch("train", session(fault="raise", ranks=[0, 1]))
    ended = run.ended()
    assert ended.status == 3
    assert ended.err.startswith("rank 0 (host ")
    assert ended.err.count("Traceback") == 1
    assert ended.err.splitlines()[-3] == "  1 other rank ended with the same error"


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("os._exit", 4, "exited with status 7 and left no verdict; last step "),
        pytest.param("sys.exit", 3, "failed at step 5, in forward: SystemExit: 0", marks=pytest.mark.slow),
    ],
)
def test_worker_that_leaves_by_itself_is_named(launch, fault, status, said):
    ended = launch("train", session(fault=fault)).ended()
    assert ended.status == status
    assert ended.err.startswith("rank 1 (host ")
    assert said in ended.err.splitlines()[0]


def test_user_code_that_cannot_be_imported_is_refused_in_a_sentence(launch):
    file = session()
    Path("net.py").write_text("import no_such_package\n")
    ended = launch("train", file).ended()
    assert ended.status == 2
    assert "net.py" in ended.err
    assert "no_such_package" in ended.err
    assert "Traceback" not in ended.err
    assert not list(Path("runs").iterdir()), "a refused run leaves its name free"


def test_loss_that_is_not_a_number_stops_the_run_with_the_step_and_the_last_good_checkpoint(launch):
    run = launch("train", session(fault="nan", at=25))
    ended = run.ended()
    assert ended.status == 6
    assert ended.err.splitlines() == [
        "the loss of rank 1 is NaN or infinite at step 25; last good checkpoint: step 20",
        f"go on: volary resume {run.directory.path}",
    ]
    assert [event.data["step"] for event in events(run.directory, "checkpoint")] == [20]
