"""Runs that are started, resumed and joined from the page; the form that it makes of a session."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from monitor._made_runs import whole_run
from page._asking import Server, served
from volary.errors import BadInput
from volary.jobs.queue import LocalQueue
from volary.jobs.settings import settings_file
from volary.page import commands
from volary.page.overview.folder import Folder
from volary.page.overview.sessions import SessionFiles
from volary.page.server.app import PageApp
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.launch.queued import LOCAL, job_of

SESSION = """network: lenet
data: {source: digits, batch_size: 64}
optimizer: {name: sgd, lr: 0.01}
train: {steps: 3}
evaluate: {every: never}
"""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A folder with a session file, one below it, and what is neither; and a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "session.yaml").write_text(SESSION)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.yml").write_text(SESSION)
    (tmp_path / "list.yaml").write_text("- network\n- data\n")
    (tmp_path / ".hidden.yaml").write_text(SESSION)
    whole_run("it")
    return tmp_path


def test_session_files_are_those_of_the_folder_and_one_below_and_no_other_can_be_asked_for(home):
    files = SessionFiles(home)
    assert files.names() == ["session.yaml", "more/other.yml"]
    (home.parent / "beside.yaml").write_text(SESSION)
    for name in ("list.yaml", "../beside.yaml", "runs/it/session.yaml", ".hidden.yaml", "/etc/passwd", ""):
        with pytest.raises(BadInput, match="no session file"):
            files.path(name)


def test_the_first_session_file_is_that_of_the_newest_run_or_else_one_that_is_valid(home):
    (home / "a-broken.yaml").write_text("network: lenet\ndata: {source: digits}\ntrain: {steps: *none}\n")
    files, run = SessionFiles(home), RunDirectory(home / "runs" / "it")

    def made_by(*command: str) -> str:
        run.environment.write_text(json.dumps({"folder": str(home), "command": ["volary", "train", *command]}))
        return files.first([run])

    assert files.first([]) == "session.yaml"
    assert made_by("more/other.yml", "optimizer.lr=0.1") == "more/other.yml"
    assert made_by(str(home / "more" / "other.yml")) == "more/other.yml"
    assert made_by("a-broken.yaml") == "session.yaml"
    assert made_by("gone.yaml") == "session.yaml"
    run.environment.write_text("no JSON")
    assert files.first([run]) == "session.yaml"


@pytest.fixture
def own(home):
    with served(home / "runs") as server:
        yield server


def post(server: Server, path: str, body: bytes = b"{}"):
    return server.say("POST", path, body, Origin=f"http://{server.address}")


def test_the_form_has_each_setting_with_its_value_and_refuses_in_the_sessions_own_words(own):
    form = own.ask("form", session="session.yaml")
    fields = {one["setting"]: one for one in form["fields"]}
    assert form["problems"] == []
    assert fields["optimizer.lr"]["value"] == "0.01"
    assert (fields["optimizer"]["value"], "adam" in fields["optimizer"]["choices"]) == ("sgd", True)
    assert fields["train.precision"]["choices"] == ["fp32", "bf16", "fp16"]
    assert fields["strategy.workers"]["note"].startswith("training processes; 2..8: between 2 and 8")
    said = own.say("GET", "/api/form?session=session.yaml&set=optimizer=adam&set=optimizer.lr=-1&set=train.step=1").json
    lr, step = said["problems"]
    assert (lr["setting"], lr["sentence"]) == ("optimizer.lr", "is -1; accepted: above 0")
    assert step["setting"] == "train.step"
    assert step["sentence"].startswith("unknown; did you mean 'steps'?")
    adam = {
        one["setting"] for one in own.say("GET", "/api/form?session=session.yaml&set=optimizer=adam").json["fields"]
    }
    assert "optimizer.betas" in adam - set(fields), "settings of the plug-in that is chosen"
    assert "optimizer.momentum" in set(fields) - adam
    assert own.ask("form", run="it")["fields"]


def test_what_cannot_be_started_is_refused_in_the_words_of_the_command(own):
    said = post(own, "/api/resume?run=it")
    assert (said.status, "is finished, after 46 steps; to train longer" in said.text) == (400, True), said.text
    said = post(own, "/api/join?run=it", b'{"workers": 1}')
    assert (said.status, "there is nothing to join" in said.text) == (400, True), said.text
    said = post(own, "/api/train?session=session.yaml", b'{"overrides": ["network=none-such"]}')
    assert (said.status, "network" in said.text) == (400, True), said.text
    assert post(own, "/api/train?session=more.yaml").status == 400
    assert post(own, "/api/train?session=session.yaml", b'{"overrides": 5}').status == 400
    assert [row["id"] for row in own.ask("runs")["runs"]] == ["it"]


def test_a_page_that_is_served_beyond_its_machine_starts_nothing(home):
    with served(home / "runs", "--host", "0.0.0.0") as server:
        of_queue = [f"/api/{name}?run=it" for name in ("hold", "release", "cancel", "move", "priority")]
        for path in ("/api/train?session=session.yaml", "/api/resume?run=it", "/api/join?run=it", *of_queue):
            said = post(server, path)
            assert (said.status, "starts nothing there" in said.text) == (400, True), path
        assert server.ask("sessions") == {"files": [], "starts": False}
        assert server.ask("queue")["starts"] is False
    assert PageApp(Folder(home / "runs"), SessionFiles(home), lambda: True, starts=False).tabs == 0


BEGINS_ANOTHER = """network: theirs.py:Net
data: {source: digits, batch_size: 64}
train: {steps: 1}
evaluate: {every: never}
"""
THEIRS = """import shutil
from pathlib import Path

import torch


class Net(torch.nn.Sequential):
    def __init__(self, classes):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(784, classes))
        if not Path("runs/another").exists():
            shutil.copytree("runs/it", "runs/another")  # as somebody else's: its name comes first
"""


@pytest.mark.slow  # a browser and two runs
def test_a_run_that_others_begin_meanwhile_is_not_taken_for_the_one_that_the_page_started(home, own, monkeypatch):
    (home / "theirs.py").write_text(THEIRS)
    (home / "theirs.yaml").write_text(BEGINS_ANOTHER)
    said = post(own, "/api/train?session=theirs.yaml")
    assert (said.status, said.json) == (200, {"run": "net-digits-1"}), said.text
    assert (home / "runs" / "another").is_dir()


# `own` before `page`: a tab that is open when its server ends asks for it again, and complains
@pytest.mark.slow  # the form's test has what it asks for, tests/page/test_actions.py a browser
def test_a_run_is_started_with_a_changed_setting_in_the_browser(own, page, home):
    page.goto(own.link + "#/")
    page.get_by_role("link", name="New run").click()
    page.get_by_label("lr", exact=True).fill("0.5x")
    page.get_by_role("alert").filter(has_text="accepted: a number").wait_for()
    page.get_by_label("lr", exact=True).fill("0.02")
    page.get_by_text("volary train session.yaml optimizer.lr=0.02").wait_for()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("heading", level=1, name="lenet-digits-1 finished").wait_for()
    with RunReader(RunDirectory(home / "runs" / "lenet-digits-1")) as reader:
        assert [row.lr for row in reader.steps()] == [0.02] * 3


@pytest.mark.slow
def test_a_run_is_resumed_longer_in_the_browser(own, page, home):
    assert post(own, "/api/train?session=session.yaml").json == {"run": "lenet-digits-1"}
    page.goto(own.link + "#/run/lenet-digits-1")
    page.get_by_role("heading", level=1, name="lenet-digits-1 finished").wait_for()
    page.get_by_role("button", name="Resume …").click()
    page.get_by_label("steps", exact=True).fill("5")
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_text("step 5 of 5").wait_for()
    page.get_by_text("train.steps is 5 from here on; it was 3").wait_for()
    page.get_by_role("heading", level=1, name="lenet-digits-1 finished").wait_for()


JOINED = """network: lenet
data: {source: digits, batch_size: 16}
train: {steps: 1000000}
evaluate: {every: never}
checkpoint: {every: never}
strategy: {consistency: async, exchange: {name: server, servers: 1}}
run: {name: open}
"""


@pytest.mark.slow
def test_a_worker_is_added_from_the_page_where_the_strategy_admits_it(own, page, home):
    (home / "session.yaml").write_text(JOINED)
    assert post(own, "/api/train?session=session.yaml").json == {"run": "open"}
    page.goto(own.link + "#/run/open")
    page.get_by_role("button", name="Add a worker").click()
    page.get_by_text("rank 1 joined").wait_for()
    page.get_by_role("button", name="Stop after this step").click()
    page.get_by_role("heading", level=1, name="open stopped").wait_for()


@pytest.mark.slow  # a start
def test_where_its_user_wants_that_a_run_of_the_page_goes_through_the_queue(home, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    settings_file().parent.mkdir(parents=True)
    settings_file().write_text("all_runs: true\n")
    with pytest.raises(BadInput, match=r"train\.stesp: unknown"):
        commands.train(home / "session.yaml", ["train.stesp=1"], Folder(home / "runs"))
    name = commands.train(home / "session.yaml", ["train.steps=1"], Folder(home / "runs"))
    assert job_of(RunDirectory(home / "runs" / name)).engine == LOCAL
    until = time.monotonic() + 120
    while LocalQueue().runs():
        assert time.monotonic() < until
        time.sleep(0.05)
    with RunReader(RunDirectory(home / "runs" / name)) as reader:
        assert reader.state() == "finished"
