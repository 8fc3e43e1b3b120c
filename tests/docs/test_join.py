"""`volary join` as the pages write it: it needs a run that is under way, and ends with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs._pages import every
from docs.conftest import RUN
from faults._running import VOLARY, events, running
from volary.session.starter import starter

JOINS = sorted(
    {
        command.partition("#")[0].strip()
        for block in every("sh", "console")
        for command in block.commands()
        if command.startswith("volary join")
    }
)
SERVED = ["strategy.workers=1", "strategy.exchange=server", "strategy.consistency=ssp"]
ENDLESS = ["train.epochs=1000", "evaluate.every=never", f"run.name={RUN}"]


@pytest.mark.slow  # up to four processes each
@pytest.mark.parametrize("command", JOINS)
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
