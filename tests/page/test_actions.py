"""The page changes a run only if the page itself asks for it, and says so where it may not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from monitor._made_runs import journal, whole_run
from page._asking import Server, served
from volary.page.actions import LARGEST_BYTES
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.tags import Tags, read_tags

KEPT = "lenet-digits-1"  # of `server`, of all tests: it stays as it is


@pytest.fixture
def own(tmp_path):
    """A server of a run that may be changed."""
    assert Path.cwd() == tmp_path
    whole_run("it")
    with served(tmp_path / "runs") as found:
        yield found


def post(server: Server, action: str, run: str = "it", body: bytes = b""):
    return server.say("POST", f"/api/{action}?run={run}", body, Origin=f"http://{server.address}")


def test_tags_and_a_note_are_replaced_and_stand_in_the_table(own):
    assert post(own, "tags", body=b'{"tags": ["good", "v2"], "note": "the first that worked"}').status == 204
    assert read_tags(RunDirectory("runs/it")) == Tags(("good", "v2"), "the first that worked")
    (row,) = own.ask("runs")["runs"]
    assert (row["tags"], row["note"]) == (["good", "v2"], "the first that worked")
    assert own.ask("facts", run="it")["tags"] == ["good", "v2"]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"tags": ["a b"]}', b'{"tags": 1}', b"\xff", b'{"note": 5}'])
def test_what_are_no_tags_is_refused_and_changes_nothing(body, server):
    assert post(server, "tags", KEPT, body).status == 400
    assert read_tags(RunDirectory(server.ask("facts", run=KEPT)["run"])) == Tags()


def test_a_body_of_any_size_is_bounded(server):
    assert post(server, "tags", KEPT, b" " * (LARGEST_BYTES + 1)).status == 413


def test_a_run_is_removed_whole(own):
    assert post(own, "remove").status == 204
    assert own.ask("runs")["runs"] == []
    assert list(Path("runs").iterdir()) == []


def test_a_run_that_runs_is_not_removed_and_one_that_does_not_is_not_stopped(own):
    with RunDirectory("runs/it").lock():
        said = post(own, "remove")
        assert (said.status, "is running" in said.text) == (404, True)
    said = post(own, "stop")
    assert (said.status, "nobody runs" in said.text) == (404, True)
    assert own.ask("facts", run="it")["step"] == 46


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"lr": "fast"}', "optimizer.lr"),
        (b'{"lr": "-1"}', "optimizer.lr"),
        (b'{"lr": "0.05"}', "optimizer.lr: is 0.05 already"),
        (b'{"lr": 0.1}', "the learning rate: Expected `str`"),
    ],
)
def test_what_is_no_other_learning_rate_is_refused_in_the_words_of_the_session(body, words, server):
    with RunDirectory(server.ask("facts", run=KEPT)["run"]).lock():
        said = post(server, "rate", KEPT, body)
    assert (said.status, words in said.text) == (400, True), said.text


NETWORK = """\
import time

from torch import nn


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(784, classes))

    def forward(self, x):
        time.sleep(0.05)  # it leaves the processor to the page
        return super().forward(x)
"""


@pytest.mark.slow  # cli/test_another_terminal.py asks a run that trains for the same; buttons are pressed below
def test_a_run_is_saved_changed_and_stopped_from_the_page_while_it_trains(page):
    Path("session.yaml").write_text(
        "network: net.py:Net\ndata: {source: digits, batch_size: 16}\noptimizer: {name: sgd, lr: 0.01}\n"
        "train: {steps: 100000}\nevaluate: {every: never}\nrun: {name: long}\n"
    )
    Path("net.py").write_text(NETWORK)
    command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
    training = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    Path("runs").mkdir(exist_ok=True)
    try:
        with served(Path("runs")) as server:
            page.goto(server.link)
            page.get_by_role("link", name="long").click()
            page.get_by_text("of 100 k").wait_for()
            page.locator("[data-card=loss]").get_by_role("img").wait_for()  # a step is done
            page.get_by_role("button", name="Checkpoint now").press("Enter")
            page.get_by_text("asked to write a checkpoint").wait_for()
            page.get_by_role("button", name="Learning rate …").click()
            rate = page.get_by_label("Learning rate before the schedule")
            assert rate.input_value() == "0.01"
            rate.fill("0.002")
            rate.press("Enter")
            page.get_by_text("optimizer.lr is 0.002 from here on; it was 0.01").wait_for()
            page.get_by_role("button", name="Stop after this step").press("Enter")
            page.get_by_role("heading", level=1, name="long stopped").wait_for()
            page.close()  # before its server is gone
    finally:
        if training.poll() is None:
            os.kill(training.pid, signal.SIGTERM)
        training.communicate(timeout=120)
    assert training.returncode == 130
    with RunReader(RunDirectory("runs/long")) as reader:
        kinds = [event.kind for event in reader.events() if event.kind in ("asked", "changed", "stopping")]
        assert kinds == ["asked", "asked", "changed", "stopping"]
        assert {row.lr for row in reader.steps()} == {0.01, 0.002}


# `own` before `page`, which is emptied before its server is gone
@pytest.mark.slow  # the actions themselves come above
def test_a_run_is_tagged_and_after_a_question_deleted_in_the_browser(own, page):
    page.goto(own.link + "#/run/it")
    page.get_by_role("button", name="Tags and note").click()
    page.get_by_label("Tags").fill("keep, me")
    page.get_by_label("Note").fill("a note")
    with journal(RunDirectory("runs/it")) as run:  # news of the run, drawn while somebody types
        run.event("warning", text="something else")
    page.locator("[data-card=wrong]", has_text="something else").wait_for()
    page.get_by_role("button", name="Save").click()
    page.locator(".tag", has_text="keep").wait_for()
    assert read_tags(RunDirectory("runs/it")) == Tags(("keep", "me"), "a note")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Keep it").click()
    assert Path("runs/it").is_dir()
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("No runs here yet").wait_for()
    assert not Path("runs/it").exists()
