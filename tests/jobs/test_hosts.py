"""Further machines of the queue: what they have, asked by ssh, and what they do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults._queue import until
from faults._running import session
from jobs._ssh import UNREACHED, hosts
from volary.cli.command.main import run as command
from volary.errors import SettingError
from volary.jobs.machines.host_watch import HostWatch
from volary.jobs.machines.hosts import doubt_host, known_hosts
from volary.jobs.settings import queue_settings, settings_file
from volary.jobs.table import queue_folder
from volary.run.machine.cores import cores_here


def test_machines_are_asked_once_and_again_when_there_is_something_new(monkeypatch):
    hosts(monkeypatch, "alpha", "me@beta:1", "gamma", down="gamma")
    watch, here = HostWatch(Path()), str(Path.cwd())
    assert watch.ask({here, "/no/such"}) == ""
    alpha, beta, gamma = until(lambda: known_hosts(Path()))
    assert (alpha.name, list(alpha.cores), alpha.folders) == ("alpha", cores_here(), (here,))
    assert (beta.name, list(beta.cores)) == ("me@beta", cores_here()[:1])
    assert gamma.why_not.startswith(f"gamma: {UNREACHED.format(name='gamma')}")
    Path("hosts.json").unlink()
    until(lambda: not watch._thread.is_alive())
    watch.ask({"/no/such", here})
    assert not watch._thread.is_alive(), "nothing is new"
    settings_file().write_text(settings_file().read_text().replace(", gamma", ""))
    watch.ask({here})
    assert [one.name for one in until(lambda: known_hosts(Path()))] == ["alpha", "me@beta"]


def test_a_machine_on_which_a_run_was_lost_takes_none_before_it_has_answered_anew(monkeypatch):
    hosts(monkeypatch, "alpha", "beta")
    watch = HostWatch(Path())
    watch.ask(())
    until(lambda: known_hosts(Path()))
    until(lambda: not watch._thread.is_alive())
    doubt_host(Path(), "beta")
    assert [one.why_not for one in known_hosts(Path())] == ["", "beta: a run was lost there, and it is asked again"]
    Path("down").write_text("beta\n")
    watch.ask(())
    until(lambda: UNREACHED.format(name="beta") in known_hosts(Path())[1].why_not)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hosts: [a b]", "hosts has 'a b'; accepted: machines as ssh has them"),
        ("hosts: [a, a:2]", "hosts has 'a' twice"),
    ],
)
def test_machines_that_are_none_are_refused_by_the_place_in_the_settings(text, sentence, monkeypatch):
    hosts(monkeypatch)
    settings_file().write_text(text)
    with pytest.raises(SettingError, match=rf"queue.yaml:1:.*{sentence}"):
        queue_settings()
    assert sentence in HostWatch(Path()).ask(())


def test_what_no_machine_has_is_refused_once_all_were_asked(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    hosts(monkeypatch, "alpha")
    session(steps=1)
    assert command(["submit", "session.yaml", "--hold", "--cores", "10000", "run.name=early"]) == 0
    watch = HostWatch(queue_folder())
    watch.ask(())
    until(lambda: known_hosts(queue_folder()))
    capfd.readouterr()
    assert command(["submit", "session.yaml", "--hold", "--cores", "10000"]) == 2
    count = len(cores_here())
    assert capfd.readouterr().err == (
        f"the run needs 10000 cores, and this machine has {count}; alpha has {count}; "
        "accepted: what one of the machines has\n"
    )
