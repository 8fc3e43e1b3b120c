from __future__ import annotations

import pytest

from monitor._made_runs import evaluated, finished, journal, new_run, rows, started, whole_run
from volary.errors import RunError
from volary.monitor.digest import Follower
from volary.monitor.outline import outline
from volary.run.directory import RunDirectory


def test_a_new_run_has_no_step_and_no_guess():
    directory = new_run()
    follower = Follower(directory)
    digest = follower.look()
    follower.close()
    assert (digest.state, digest.step, digest.window, digest.left_s, digest.best) == ("new", 0, None, None, None)
    assert digest.session.sentence() == (
        "lenet on digits, batch 64, sgd lr 0.05, 2 workers, bsp x allreduce x none x data, local"
    )


def test_a_digest_tells_how_far_how_fast_and_how_good():
    directory = new_run()
    with journal(directory) as run, directory.lock():
        started(run)
        run.steps(rows(1, 143))
        evaluated(run, 138, 0.9711)
        follower = Follower(directory)
        digest = follower.look()
        follower.close()
    assert (digest.state, digest.step, digest.steps_planned, digest.workers) == ("running", 143, 230, 2)
    assert digest.left_s == pytest.approx((230 - 143) * 0.1)
    assert digest.window is not None
    assert digest.window.samples_per_s == pytest.approx(640)
    assert digest.evaluated is not None
    assert digest.evaluated.values == {"accuracy": 0.9711, "loss": 0.1}
    assert digest.best is not None
    assert (digest.best.step, digest.best.values) == (138, {"accuracy": 0.9711})


def test_each_event_is_news_once():
    directory = new_run()
    with journal(directory) as run:
        follower = Follower(directory)
        run.event("started")
        assert [event.kind for event in follower.look().news] == ["started"]
        assert follower.look().news == ()
        run.event("warning", text="the disk is slow")
        digest = follower.look()
        follower.close()
    assert [event.kind for event in digest.news] == ["warning"]
    assert len(digest.warnings) == 1


def test_the_newest_three_warnings_stay_and_what_two_ranks_tell_alike_counts_once():
    directory = new_run()
    with journal(directory) as run:
        for rank in (0, 1):
            run.event("checkpoint_failed", rank, 23, reason="No space left on device")
        for number in range(3):
            run.event("warning", text=f"number {number}")
    follower = Follower(directory)
    digest = follower.look()
    follower.close()
    assert [event.data["text"] for event in digest.warnings] == ["number 0", "number 1", "number 2"]
    assert len(digest.news) == 5


def test_the_time_left_of_a_resumed_run_counts_its_own_life_alone():
    directory = new_run()
    with journal(directory) as run:
        started(run)
        run.steps(rows(1, 50))
        run.event("resumed", from_step=50)
        run.steps(row for row in rows(51, 61, ended_at=0.0) if row.step == 51)
        run.steps(rows(61, 61, ended_at=5.0))
        follower = Follower(directory)
        assert follower.look().left_s == pytest.approx((230 - 61) * 0.5)
        follower.close()


def test_elapsed_time_stops_with_the_run():
    directory = new_run()
    with journal(directory) as run:
        run.note(started_at=100.0, ended_at=160.5)
    follower = Follower(directory, clock=lambda: 1e9)
    assert follower.look().elapsed_s == pytest.approx(60.5)
    follower.close()


def test_notes_that_are_no_numbers_are_not_known_instead_of_wrong():
    directory = new_run()
    with journal(directory) as run:
        run.note(steps_planned="None", started_at="yesterday", best="", workers="two")
    follower = Follower(directory)
    digest = follower.look()
    follower.close()
    assert (digest.steps_planned, digest.elapsed_s, digest.best) == (None, None, None)
    assert str(digest.workers) == outline(directory.session).workers  # as the session has it


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "run.sqlite").write_text("not a database at all, but long enough to be looked at" * 10)
    with pytest.raises(RunError, match=r"run\.sqlite"):
        Follower(RunDirectory(tmp_path))


@pytest.mark.parametrize(
    "text", ["", "- a list", "network: {name: [}", "network:\n :\n  :: x", "data: 3\nstrategy: none", "\x00"]
)
def test_a_strange_session_file_gives_an_outline_without_what_it_does_not_tell(text, tmp_path):
    (tmp_path / "session.yaml").write_text(text)
    assert "lenet" not in outline(tmp_path / "session.yaml").sentence()


def test_a_finished_run_is_finished_and_one_without_its_driver_is_lost():
    directory = whole_run()
    follower = Follower(directory)
    assert follower.look().state == "finished"
    follower.close()
    lost = new_run("lost")
    with journal(lost) as run:
        started(run)
        follower = Follower(lost)
        assert follower.look().state == "lost"
        follower.close()
        finished(run, 3, "failed", "rank 1 died")


def test_code_of_the_users_own_is_named_without_its_folder(tmp_path):
    (tmp_path / "session.yaml").write_text(
        f"network:\n  name: {tmp_path}/mlp.py:Mlp\ndata:\n  source:\n    name: rings:Rings in {tmp_path}\n"
    )
    assert outline(tmp_path / "session.yaml").sentence() == "mlp.py:Mlp on rings:Rings"


def test_a_network_of_the_zoo_that_has_a_depth_is_named_with_it(tmp_path):
    (tmp_path / "session.yaml").write_text("network:\n  name: resnet\n  depth: 18\ndata:\n  source: digits\n")
    assert outline(tmp_path / "session.yaml").sentence() == "resnet18 on digits"
