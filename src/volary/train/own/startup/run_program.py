"""A worker's job in a run of a user's own program: the program, as `__main__`, which becomes a worker by itself."""

from __future__ import annotations

import runpy
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from volary.errors import BadInput, ProgramEnded, Stopped
from volary.run.log import by_line
from volary.session.script import Script
from volary.train.coordinator import Outcome
from volary.train.member.compare import code_facts, file_facts
from volary.train.own.startup import init
from volary.train.own.startup.standard_input import read_as_the_driver

if TYPE_CHECKING:
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.own.worker import Worker
    from volary.train.recording.recorder import Recorder


def run_program(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Run the run's program as one of its ranks. Raises what it raises, and ProgramEnded for a status of its own."""
    script = Script.read(member.directory.session)
    recorder.starting("running the program")
    by_line()
    if member.place.leads and type(script.engine).__module__.endswith(".local"):
        read_as_the_driver()  # of other engines it is on another machine, or has a use for it
    with ExitStack() as stack:

        def join() -> Worker:
            from volary.train.own.startup.joining import worker_of

            facts = code_facts({}) | file_facts(script.program)
            return stack.enter_context(worker_of(member, script, recorder, pulse, facts, "running the program"))

        init.offer(join)
        try:
            _run(script)
        except Stopped:
            return init.ended_as(init.begun())
        except SystemExit as ended:
            _judge(ended, _called(script))
        if init.begun() is None:
            raise BadInput(
                f"{_called(script)} ended without volary.init(), so each worker ran all of it by itself; accepted: "
                "worker = volary.init() before the model is distributed"
            )
    return "finished"


def _called(script: Script) -> str:
    return script.module or Path(script.program).name


def _run(script: Script) -> None:
    """Run the program as Python would: what is beside the file, or in the current folder, can be imported."""
    if script.module:
        sys.argv = [script.module, *script.arguments]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(script.module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [script.program, *script.arguments]
        sys.path.insert(0, str(Path(script.program).parent))
        runpy.run_path(script.program, run_name="__main__")


def _judge(ended: SystemExit, called: str) -> None:
    """Raise ProgramEnded unless it ended well, after it had begun."""
    begun = init.begun() is not None
    if ended.code is None or isinstance(ended.code, int):
        status, words = ended.code or 0, ""
    else:
        status, words = 1, f": {ended.code}"
    if begun and not status:
        return
    before = "" if begun else " before it called volary.init(), so there is no run"
    raise ProgramEnded(f"{called} ended with status {status}{before}{words}", status, begun=begun) from ended
