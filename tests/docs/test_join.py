"""`volary join`, `leave`, `invite` and `gate` as the pages write them: they need a run that is under way."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest

from docs._pages import every
from docs.conftest import RUN
from faults._running import VOLARY, events, running
from volary.session.starter import starter


def written(verb: str) -> list[str]:
    """The commands of that verb on all pages."""
    commands = (one.partition("#")[0].strip() for block in every("sh", "console") for one in block.commands())
    return sorted({command for command in commands if command.startswith(verb)})


SERVED = ["strategy.workers=1", "strategy.exchange=server", "strategy.consistency=ssp"]
ENDLESS = ["train.epochs=1000", "evaluate.every=never", f"run.name={RUN}"]


@pytest.mark.slow  # up to four processes each
@pytest.mark.parametrize("command", written("volary join"))
def test_workers_join_a_run_and_it_ends_with_them(command: str) -> None:
    Path("session.yaml").write_text(starter())
    more = 2 if "--workers 2" in command else 1
    with running(*VOLARY, "train", "session.yaml", *SERVED, *ENDLESS, name=RUN) as run:
        run.wait_for_step(2)
        with running(*VOLARY, *command.split()[1:], name=RUN) as joining:
            run.wait_until(lambda: len(events(run.directory, "joined")) == more)
            run.process.terminate()
            assert run.ended().status == 130
            assert joining.ended().status == 0


@pytest.mark.slow  # three processes
def test_the_commands_that_invite_print_one_that_joins() -> None:
    Path("session.yaml").write_text(starter())
    with running(*VOLARY, "train", "session.yaml", *SERVED, *ENDLESS, name=RUN) as run:
        run.wait_for_step(2)
        for command in written("volary invite"):
            with running(*VOLARY, *command.split()[1:], name=RUN) as inviting:
                said = inviting.ended()
            assert (said.status, said.out[:19]) == (0, "volary join volary:"), said.err
        run.process.terminate()
        assert run.ended().status == 130


@pytest.mark.slow  # four processes
def test_the_commands_that_open_a_way_open_one() -> None:
    def here(command: str) -> str:
        return re.sub(r"\d+\.\d+\.\d+\.\d+:\d+", f"127.0.0.1:{free_port()}", command)

    Path("session.yaml").write_text(starter())
    (relay,) = written("volary relay")
    with (
        running(*VOLARY, "train", "session.yaml", *SERVED, *ENDLESS, name=RUN) as run,
        running(*VOLARY, *here(relay).split()[1:], name="relay") as between,
    ):
        run.wait_for_step(2)
        token = between.wait_until(lambda: re.search(r"relay:[\w-]{40,}", between.text()))[0]
        for command in written("volary gate"):
            opening = re.sub(r"relay:\S+", token, here(command))
            with running(*VOLARY, *opening.split()[1:], name="gate") as gate:
                gate.wait_until(lambda gate=gate: "is reached by the " in gate.text())
                gate.process.send_signal(signal.SIGINT)
                assert gate.ended().status == 0
        run.process.terminate()
        assert run.ended().status == 130


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@pytest.mark.slow  # four processes
@pytest.mark.parametrize("command", written("volary leave"))
def test_a_worker_leaves_a_run_that_goes_on_without_it(command: str) -> None:
    Path("session.yaml").write_text(starter())
    trained = ["strategy.workers=3", "strategy.recover=memory"]
    with running(*VOLARY, "train", "session.yaml", *trained, *ENDLESS, name=RUN) as run:
        run.wait_for_step(2)
        with running(*VOLARY, *command.split()[1:], name=RUN) as leaving:
            said = leaving.ended()
        assert (said.status, said.out.split()[:3]) == (0, ["rank", "2", "left"]), said.err
        run.wait_until(lambda: len(events(run.directory, "recovered")) == 1)
        run.process.terminate()
        assert run.ended().status == 130
