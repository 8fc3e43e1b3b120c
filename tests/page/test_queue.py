"""The page's view of the queue: what runs where, who waits, and what may be changed of it. Nothing starts here."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from page._asking import served
from volary.errors import BadInput
from volary.jobs.entry import Demand, Given, HostCapacity, PastUse, QueueEntry
from volary.jobs.machines.unqueued import counted
from volary.jobs.table import QueueTable, queue_folder
from volary.page.actions import STARTS
from volary.page.overview.folder import Folder
from volary.page.overview.queue import QueueHere, queue_here
from volary.run.directory import RunDirectory
from volary.run.machine.cores import cores_here

NOBODY = [
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),  # a Python in root's home is found, too
]


@pytest.fixture(autouse=True)
def own_queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def queued(name: str, folder: str = "runs", **more: Any) -> QueueEntry:
    """A run in the queue: without more, one that waits and is held."""
    run = RunDirectory.create(Path(folder), name, name, "network: lenet\ndata: {source: digits}\n")
    given = {"demand": Demand(1, 1 << 30), "held": True} | more
    with QueueTable(queue_folder()) as table:
        return table.add(QueueEntry(run=str(run.path), **given), {})


def running(name: str, cores: tuple[int, ...]) -> None:
    demand = Demand(len(cores), 1 << 30)
    queued(name, state="running", held=False, demand=demand, given=Given(cores))


def look() -> QueueHere:
    return queue_here(Folder(Path("runs")), starts=True)


def waiting() -> list[str]:
    return [run.name for run in look().runs if run.state == "waiting"]


def tell(action: str, run: str, **body: object) -> None:
    STARTS[action](Folder(Path("runs")).run(run), msgspec.json.encode(body))


def test_it_says_what_runs_where_and_why_others_wait():
    cores = tuple(cores_here())
    running("a", cores[:1])
    queued("b", held=False, demand=Demand(len(cores)))
    queued("c", folder="elsewhere", priority=-1)
    found = look()
    assert (found.machines[0].cores, found.carried_out) == (cores, False), "no runner is there; looking starts none"
    a, b, c = found.runs
    assert (a.id, a.state, a.given_cores, a.memory_bytes) == ("a", "running", cores[:1], 1 << 30)
    assert (b.id, b.state, b.given_cores, b.reason[:9]) == ("b", "waiting", (), "waits for")
    assert (c.id, c.name, c.held, c.reason) == (None, "c", True, "held"), "of another folder's run the name alone"


def test_cores_of_a_run_that_trains_without_the_queue_are_used():
    queued("b")
    run = RunDirectory.create(Path("runs"), "alone", "it", "network: lenet\n")
    with run.lock(), counted(run, [cores_here()[-1]]):
        assert look().machines[0].used_cores == (cores_here()[-1],)


def test_what_runs_on_another_machine_is_shown_there_and_one_that_is_not_reached_is_said(monkeypatch):
    gpu = Given((2,), (1,), "alpha")
    queued("far", state="running", held=False, demand=Demand(1, 1 << 30, 1), given=gpu)
    alpha = HostCapacity("alpha", (2, 3), 8 << 30, gpus=(0, 1), used_gpus=(0, 1))
    hosts = (alpha, HostCapacity("beta", why_not="beta is not reached"))
    monkeypatch.setattr("volary.jobs.machinery.known_hosts", lambda _: hosts)
    found = look()
    here, there = found.machines
    assert (here.name, there.name, there.cores, there.gpus, there.used_gpus) == ("", "alpha", (2, 3), (0, 1), (0,))
    assert [(run.host, run.given_cores, run.given_gpus) for run in found.runs] == [("alpha", (2,), (1,))]
    assert found.remarks == ["beta is not reached"]


def test_what_ran_before_is_there_with_its_part_of_the_machine_once_for_each_start():
    kept = queued("a", boot="b", started_s=5.0)
    with QueueTable(queue_folder()) as table:
        for ended_at in (200.0, 210.0):  # a runner that was killed meanwhile looks again
            table.keep_past(kept, PastUse(kept.run, Given((1,), (0,)), 1 << 30, 100.0, ended_at))
        table.keep_past(msgspec.structs.replace(kept, started_s=6.0), PastUse(kept.run, Given((0,)), 5, 220.0, 230.0))
    first, second = look().past
    assert (first.id, first.given_cores, first.given_gpus, first.memory_bytes) == ("a", (1,), (0,), 1 << 30)
    assert [(one.began_at, one.ended_at) for one in (first, second)] == [(100.0, 210.0), (220.0, 230.0)]


def test_looking_makes_no_queue_where_there_is_none():
    assert look().runs == []
    assert not queue_folder().exists()


def test_runs_change_places_with_their_neighbours_of_the_same_priority():
    for name in "abc":
        queued(name)
    queued("first", priority=5)
    tell("move", "c", by=-1)
    assert waiting() == ["first", "a", "c", "b"]
    tell("move", "a", by=1)
    assert waiting() == ["first", "c", "a", "b"]
    for end, by in (("c", -1), ("b", 1), ("first", 1)):
        tell("move", end, by=by)
    assert waiting() == ["first", "c", "a", "b"]


def test_a_run_is_moved_by_several_places_and_to_an_end_at_most():
    for name in "abcd":
        queued(name)
    for name, by, order in (("d", -2, "adbc"), ("a", 2, "dbac"), ("d", 9, "bacd"), ("c", -9, "cbad"), ("b", 0, "cbad")):
        tell("move", name, by=by)
        assert waiting() == list(order)


def test_a_run_is_held_given_a_priority_and_taken_out():
    for name in "ab":
        queued(name)
    tell("priority", "b", value=3)
    assert waiting() == ["b", "a"]
    tell("cancel", "b")
    assert waiting() == ["a"]
    running("here", (0,))
    with pytest.raises(BadInput, match="here is running; accepted: one that waits"):
        tell("move", "here", by=-1)
    for body in ({"value": "high"}, {"value": 1 << 40}, {}):
        with pytest.raises(BadInput, match="priority: "):
            tell("priority", "a", **body)
    with pytest.raises(BadInput, match="b is not in the queue"):
        tell("hold", "b")


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv, for a second user"
)
def test_the_pages_of_two_users_show_and_change_each_his_own(monkeypatch):
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        homes = {name: (Path(place, name), user) for name, user in (("ant", 0), ("bee", 65534))}
        for name, (home, user) in homes.items():
            monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
            queued(f"of-{name}", str(home / "runs"))
            for path in (home, *home.rglob("*")):
                os.chown(path, user, user)
        with served(homes["ant"][0] / "runs") as ants, served(homes["bee"][0] / "runs", by=NOBODY) as bees:
            for name, server in (("ant", ants), ("bee", bees)):
                assert [one["name"] for one in server.ask("queue")["runs"]] == [f"of-{name}"]
                assert [one["id"] for one in server.ask("runs")["runs"]] == [f"of-{name}"]
            said = ants.say("POST", "/api/priority?run=of-bee", b'{"value": 3}', Origin=f"http://{ants.address}")
            assert said.status == 404, said.text
            said = bees.say("GET", "/api/queue", Cookie=f"{bees.cookie.partition('=')[0]}={ants.token}")
            assert said.status == 401, said.text
            mine = bees.say("POST", "/api/priority?run=of-bee", b'{"value": 3}', Origin=f"http://{bees.address}")
            assert mine.status == 204, mine.text
            assert [one["priority"] for one in bees.ask("queue")["runs"]] == [3]


# what it presses is asked for above, without a browser
@pytest.mark.slow
def test_the_queue_is_changed_in_the_browser(page):
    from playwright.sync_api import expect

    for name in "abc":
        queued(name)
    with served(Path("runs")) as server:
        page.goto(server.link)
        page.get_by_role("link", name="Queue").click()
        names = page.locator("[data-card=waiting] li a")
        expect(names).to_have_text(["a", "b", "c"])
        page.get_by_role("button", name="move c up").press("Enter")
        expect(names).to_have_text(["a", "c", "b"])
        expect(page.get_by_role("button", name="move c up")).to_be_focused()
        page.locator("li[data-run=b]").drag_to(page.locator("li[data-run=a]"))
        expect(names).to_have_text(["b", "a", "c"])
        page.locator("li[data-run=b]").drag_to(page.locator("li[data-run=c]"))
        expect(names).to_have_text(["a", "c", "b"])
        page.get_by_label("priority of b").fill("2")
        page.get_by_label("priority of b").press("Enter")
        expect(names).to_have_text(["b", "a", "c"])
        page.get_by_role("button", name="move c to the front").press("Enter")
        expect(names).to_have_text(["b", "c", "a"])
        page.get_by_role("button", name="Cancel a").click()
        expect(names).to_have_text(["b", "c"])
        queued("d", priority=9)  # by somebody else: it comes by itself
        expect(names).to_have_text(["d", "b", "c"])
        page.goto("about:blank")
    assert waiting() == ["d", "b", "c"]
