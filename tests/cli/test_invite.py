"""`volary invite`: a machine that sees nothing of a run joins it by one line, as often as that says, and no longer."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults._running import VOLARY, Run, events, learnt, running, session
from volary.comm.control.connection import Connection
from volary.comm.control.errors import KeyRefused
from volary.run.directory import RunDirectory
from volary.run.launch.invitation import PREFIX, Invitation, Terms
from volary.session.spec import Session


@pytest.fixture
def run() -> Iterator[Run]:
    text = session(workers=1, pace_s=0.02, consistency="async", exchange="{name: server, servers: 1}")
    with running(*VOLARY, "train", text) as one:
        one.wait_for_step(3)
        Path("elsewhere").mkdir()
        shutil.copy("net.py", "elsewhere")
        yield one


def invited(volary: Any, *options: str) -> str:
    """The word of the command that was printed."""
    said = volary("invite", "it", *options)
    assert said.status == 0, said.err
    words = said.out.split()
    assert words[:2] == ["volary", "join"]
    return str(words[2])


def altered(line: str, **how: Any) -> str:
    return msgspec.structs.replace(Invitation.read(line), **how).line()


def test_who_sees_nothing_of_the_run_joins_by_the_line_once_and_as_its_terms_say(run, volary):
    line = invited(volary)
    terms = Terms.parse(Invitation.read(line).terms)
    assert terms is not None
    more = altered(line, terms=str(msgspec.structs.replace(terms, workers=9)))
    longer = altered(line, terms=str(msgspec.structs.replace(terms, until=terms.until + 9999)))
    for one in (more, longer, altered(line, key=bytes(range(32)))):
        said = volary("join", one)
        assert (said.status, said.out) == (2, "")
        assert "refuses the invitation: it was altered, or is of another run; accepted: the word" in said.err
    with running(*VOLARY, "join", line, cwd="elsewhere") as joining:
        run.wait_until(lambda: learnt(run, 1))
        said = volary("join", line)
        assert said.status == 2
        assert "cannot be joined: the invitation is for 1 worker, and was used by 1; accepted: a new one" in said.err
        joining.process.send_signal(signal.SIGINT)
        ended = joining.ended()
    assert (ended.status, ended.out.split(" left ")[0]) == (0, "rank 1"), ended.err
    run.wait_until(lambda: [event.rank for event in events(run.directory, "left")] == [1])
    assert {path.name for path in Path("elsewhere").iterdir()} <= {"net.py", "__pycache__"}
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130
    assert events(run.directory, "lost") == []
    said = volary("join", line)
    assert said.status == 2
    assert "does not answer: it is over, or not reached from here" in said.err


def test_its_key_opens_no_other_service_of_the_run(run, volary):
    found = Invitation.read(invited(volary))
    for service in ("door", "board", "pulse", "invitation", "files", f"pulse/{found.terms}"):
        with pytest.raises(KeyRefused, match="not the run's key"):
            Connection.open(found.host, found.port, found.key, service, {}, found.attempt_id)


@pytest.mark.slow  # another three processes
def test_who_joins_with_other_code_is_shown_the_differences_and_keeps_the_log(run, volary):
    line = invited(volary)
    text = Path("net.py").read_text()
    Path("elsewhere/net.py").write_text(
        text.replace("nn.Linear(", "torch.nn.Linear(", 1).replace("32, classes", "32, classes, bias=False")
    )
    with running(*VOLARY, "join", line, cwd="elsewhere") as joining:
        ended = joining.ended()
    assert ended.status == 5
    assert ended.err.startswith(
        "rank 1 differs from the run's first worker, so it does not take part:\n  code of network"
    )
    assert "log: volary-logs/it-worker-1.log" in ended.err
    assert Path("elsewhere/volary-logs/it-worker-1.log").stat().st_size
    assert run.process.poll() is None


@pytest.mark.slow  # five processes
def test_who_is_invited_trains_where_workers_keep_step(volary):
    with running(*VOLARY, "train", session(workers=2, pace_s=0.01), "strategy.recover=memory") as run:
        run.wait_for_step(3)
        Path("elsewhere").mkdir()
        shutil.copy("net.py", "elsewhere")
        with running(*VOLARY, "join", invited(volary, "--for", "5min"), cwd="elsewhere") as joining:
            run.wait_until(lambda: learnt(run, 2))
            joining.process.send_signal(signal.SIGINT)
            assert joining.ended().status == 0
        run.wait_until(lambda: [event.rank for event in events(run.directory, "left")] == [2])
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 130


def test_run_that_nobody_runs_and_one_that_nobody_can_join_invite_nobody(volary):
    text = session(consistency="async", exchange="{name: server, servers: 1}")
    RunDirectory.create(RunDirectory("runs").path, "it", "x", Session.read(text).to_yaml())
    said = volary("invite", "it")
    assert (said.status, said.out) == (2, "")
    assert "nobody runs" in said.err
    RunDirectory.create(RunDirectory("runs").path, "fixed", "x", Session.read(session()).to_yaml())
    assert "trains with workers that are fixed; accepted: a run with" in volary("invite", "fixed").err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--for", "soon"], "--for is 'soon'; accepted: a length of time"),
        (["--for", "0h"], "--for is '0h'; accepted: a length of time"),
        (["--workers", "0"], "--workers"),
    ],
    ids=str,
)
def test_terms_that_are_none_are_refused(volary, options, told):
    text = session(consistency="async", exchange="{name: server, servers: 1}")
    RunDirectory.create(RunDirectory("runs").path, "it", "x", Session.read(text).to_yaml())
    said = volary("invite", "it", *options)
    assert said.status == 2
    assert told in said.err


def test_what_is_no_whole_invitation_or_has_expired_is_refused_before_anybody_is_asked(volary):
    made = Invitation("127.0.0.1", 9, 1, "a", "/r", "/", "j:f", str(Terms.made(1, 60)), bytes(32))
    for line in (PREFIX, f"{PREFIX}what", made.line()[:-7], made.line()[:30]):
        said = volary("join", line)
        assert (said.status, said.out) == (2, "")
        assert "is no whole invitation; accepted: the word that volary invite has printed" in said.err
    said = volary("join", msgspec.structs.replace(made, terms=str(Terms.made(1, -60))).line())
    assert said.status == 2
    assert said.err.startswith("the invitation has expired, at 20")
    said = volary("join", made.line(), "engine=hosts")
    assert "engine=hosts: workers that join by an invitation are started on this machine; accepted: none" in said.err
