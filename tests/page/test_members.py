"""The page's list of members: who is in the run, and how one of them leaves it or is expelled."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from faults._running import VOLARY, events, running, session
from faults.test_recovered import LOCAL, MEMORY
from monitor._made_runs import journal, new_run, rows, started
from page._asking import Server, served
from page.test_in_the_browser import card
from volary.run.control.requests import FIXED
from volary.run.directory import RunDirectory


def leave(server: Server, body: bytes, run: str = "lenet-digits-1"):
    return server.say("POST", f"/api/leave?run={run}", body, Origin=f"http://{server.address}")


def test_a_run_that_trains_has_its_members_and_says_why_nobody_can_leave(tmp_path):
    directory = new_run("it")
    with journal(directory) as run:
        started(run)
        run.note(hosts='{"0": "ant", "1": "bee"}')
        run.steps(rows(1, 10))
        run.event("asked", 1, 10, what="let rank 1 leave")
    with served(tmp_path / "runs") as server:
        assert server.ask("facts", run="it")["roster"] == []  # nobody runs it
        with directory.lock():
            facts = server.ask("facts", run="it")
    members = [(one["rank"], one["host"], one["state"], one["step"]) for one in facts["roster"]]
    assert members == [(0, "ant", "trains", 10), (1, "bee", "leaves", 10)]
    assert [one["samples_per_s"] for one in facts["roster"]] == pytest.approx([320, 320])
    assert facts["fixed"] == FIXED


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"rank": -1}', b'{"rank": 2147483648}', b'{"rank": 99999999999999999999}', b'{"rank": "1"}',
     b'{"rank": 1.5}', b'{"rank": 1, "now": 1}', b'{"rank": 1, "all": true}'],
)  # fmt: skip
def test_what_names_no_worker_is_refused_before_anybody_is_asked(body, server):
    directory = RunDirectory(server.ask("facts", run="lenet-digits-1")["run"])
    with directory.lock():
        said = leave(server, body)
    assert (said.status, said.text.startswith("leave: ")) == (400, True), said.text
    assert not list(directory.path.glob("request-*"))


def test_nobody_leaves_a_run_that_nobody_runs(server):
    said = leave(server, b'{"rank": 1}')
    assert (said.status, "nobody runs" in said.text) == (404, True)


@pytest.mark.slow  # a run, and a browser
@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ({}, [MEMORY]),
        ({"consistency": LOCAL}, [MEMORY]),
        ({"consistency": "{name: gossip, period: 2}"}, [MEMORY]),
        ({"consistency": "async", "exchange": "server"}, []),
    ],
    ids=["bsp", "local", "gossip", "async over servers"],
)
def test_workers_leave_and_are_expelled_in_the_browser_and_the_last_one_stays(page, strategy, more):
    with running(*VOLARY, "train", session(workers=3, pace_s=0.05, **strategy), *more) as run:
        run.wait_for_step(5)
        with served(Path("runs")) as server:
            page.goto(server.link + "#/run/it")
            listed = card(page, "members")
            row = {rank: listed.get_by_role("row", name=re.compile(f"^rank {rank} ")) for rank in range(3)}
            for rank in range(3):
                row[rank].filter(has_text="trains").wait_for()
            listed.get_by_role("button", name="Leave: rank 2").click()
            row[2].filter(has_text="left").wait_for()
            assert row[2].get_by_role("button").count() == 0
            expel = listed.get_by_role("button", name="Expel … rank 1")
            expel.click()
            page.get_by_role("button", name="Keep it").click()
            assert events(run.directory, "lost") == []
            expel.click()
            page.get_by_role("heading", name="Expel rank 1 at once?").wait_for()
            page.get_by_role("button", name="Expel", exact=True).click()
            row[1].filter(has_text="lost").wait_for()
            another = page.context.new_page()  # the browser itself complains of what is refused
            another.goto(server.link + "#/run/it")
            card(another, "members").get_by_role("button", name="Leave: rank 0").click()
            another.get_by_role("alert").filter(has_text="rank 0 is the last one; accepted: volary stop").wait_for()
            another.close()
            page.close()  # before its server is gone
        with running(*VOLARY, "show", "it") as showing:
            shown = showing.ended().out
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 130
    assert [(one.rank, one.kind) for kind in ("left", "lost") for one in events(run.directory, kind)] == [
        (2, "left"),
        (1, "lost"),
    ]
    assert events(run.directory, "lost")[0].data["reason"] == "was expelled by volary leave --now"
    listed_there = {line.split()[0]: line for line in shown.partition("\nworkers\n")[2].splitlines()[1:5] if line}
    assert [word in listed_there[rank] for rank, word in (("0", "trains"), ("1", "lost"), ("2", "left"))] == [True] * 3


@pytest.mark.slow  # a run, and a browser
def test_where_workers_are_fixed_the_list_says_so_and_has_no_buttons(page):
    with running(*VOLARY, "train", session(workers=2, pace_s=0.05)) as run:
        run.wait_for_step(5)
        with served(Path("runs")) as server:
            page.goto(server.link + "#/run/it")
            listed = card(page, "members")
            listed.get_by_text(FIXED).wait_for()
            assert listed.get_by_role("row").count() == 3
            assert listed.get_by_role("button").count() == 0
            assert FIXED in leave(server, b'{"rank": 1, "now": true}', "it").text
            page.close()  # before its server is gone
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 130
