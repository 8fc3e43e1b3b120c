"""`volary.init()`: this process becomes a worker of a run, however it was started."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from volary.errors import BadInput, Stopped, VolaryError
from volary.placement import look
from volary.run.launch.assignment import Assignment
from volary.run.launch.parent import die_with_parent
from volary.run.log import print_into
from volary.run.machine.cores import cores_here, share_of
from volary.session.script import MODULE, Script

if TYPE_CHECKING:
    from volary.placement import Place
    from volary.train.coordinator import Outcome
    from volary.train.member.process import Presence
    from volary.train.own.worker import Worker

SETTINGS = "VOLARY_SETTINGS"  # in the environment of a program that a launcher starts
_offer: Callable[[], Worker] | None = None  # of a process that a run has started for its program
_worker: Worker | None = None


def init() -> Worker:
    """This process as a worker of its run; call it once, before the model is distributed.

    Started by `volary launch`, torchrun, mpirun or srun, it is one of their workers: it joins the others here, which
    waits for them. Started as any program, it is a world of one: nothing listens, and nothing is written.
    Raises BadInput where it does not fit, and what a run's start raises.
    """
    global _worker
    if _worker is not None:
        raise BadInput("volary.init was called twice in this process; accepted: once, and to hand its worker on")
    if _offer is not None:
        _worker = _offer()
        return _worker
    if multiprocessing.parent_process() is not None:
        raise BadInput(
            "volary.init was called in a process that multiprocessing has started (a data loader's, perhaps), which "
            'imports the program again; put the training under `if __name__ == "__main__":`'
        )
    place = look()
    if Assignment.found(os.environ) is not None:
        raise BadInput(
            "volary.init was called in a process that is no worker itself, below one that Volary has started; "
            "accepted: in a program that `volary launch` runs; a function of volary.launch is given its worker"
        )
    _worker = _alone() if place is None else _launched(place)
    return _worker


def offer(join: Callable[[], Worker]) -> None:
    """Let `volary.init()` in this process, which runs a run's program, call `join`."""
    global _offer
    _offer = join


def begun() -> Worker | None:
    """The worker that `volary.init()` returned in this process; None if it was not called."""
    return _worker


def ended_as(worker: Worker | None) -> Outcome:
    """How the run ended for a worker that was asked to end, or told that it is over; None: before it was one."""
    return "stopped" if worker is None else worker.outcome


def program() -> tuple[str, list[str]]:
    """The program of this process, as `Script.of_program` takes it, and its arguments."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = f"{MODULE}{spec.name}" if spec is not None else sys.argv[0] or str(Path.cwd() / "interactive")
    return name, sys.argv[1:]


def _settings_of_environment() -> list[str]:
    """The settings in VOLARY_SETTINGS, as `volary launch` takes them before the program. Raises BadInput."""
    text = os.environ.get(SETTINGS, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{SETTINGS} is {text!r}: {error}; accepted: NAME=VALUE, and more after a space") from None


def _alone() -> Worker:
    from volary.train.device import choose_device
    from volary.train.member.pulse import NoDriver
    from volary.train.own.replicated_loop import ReplicatedLoop
    from volary.train.own.worker import Worker
    from volary.train.recording.recorder import Recorder
    from volary.train.worker.connect import alone

    script, group = Script.of_program(*program()), alone()
    recorder, device = Recorder.unheard(), choose_device(script.device, 0, 1)
    worker = Worker(ReplicatedLoop(script, group, recorder, NoDriver(), device), script, recorder, device, 0)
    atexit.register(worker.close)
    return worker


def _launched(place: Place) -> Worker:
    """A worker of a launcher that started the program itself: it beats from here on, and says goodbye at its exit."""
    from volary.train.member.compare import code_facts, file_facts
    from volary.train.member.meeting import meet_for_program
    from volary.train.member.process import Presence
    from volary.train.own.startup.joining import worker_of

    settings = _settings_of_environment()
    die_with_parent()
    _take_share_of_cores(place)
    run = ExitStack()
    member, script = run.enter_context(meet_for_program(place, *program(), settings))
    if place.writes_log:
        print_into(member.directory.log(place.rank))
    present = Presence(member)
    working = ExitStack()
    _Departure(working, present, run)
    facts = code_facts({}) | file_facts(script.program) | {SETTINGS: " ".join(settings)}
    joining = worker_of(member, script, present.recorder, present.pulse, facts, "running the program")
    return working.enter_context(joining)


class _Departure:
    """How the process ends: an exception that nobody caught, or none, becomes its verdict when Python exits.

    What `sys.exit` is given stays between the program and its launcher. working: what ends with the program. run: what
    ends once its driver has the verdict.
    """

    def __init__(self, working: ExitStack, present: Presence, run: ExitStack) -> None:
        self._working, self._present, self._run = working, present, run
        self._error: BaseException | None = None
        self._before = sys.excepthook
        sys.excepthook = self._raised
        atexit.register(self._leave)
        self._handle_notices()

    def _raised(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._error = error
        if isinstance(error, VolaryError):
            print(error.report, file=sys.stderr, flush=True)
        else:
            self._before(kind, error, trace)

    def _leave(self) -> None:
        from volary.train.member.pulse import leave_now

        error = self._error
        try:
            self._end(error)
        except SystemExit as ended:  # by the run's driver: all was not well
            if error is None:
                leave_now(int(ended.code or 0))  # Python asks nobody at its exit

    def _end(self, error: BaseException | None) -> None:
        with self._run:
            try:
                self._working.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
            except BaseException as found:
                error = error or found
            if error is None or isinstance(error, Stopped):
                self._present.ended(ended_as(_worker) if error else "finished")
            else:
                self._present.failed(error)

    def _handle_notices(self) -> None:
        """A launcher's notice, or Ctrl-C: the run ends after this step. A second one, or the program's own, decides."""
        if threading.current_thread() is not threading.main_thread():
            return

        def ask(number: int, _frame: object) -> None:
            self._present.pulse.ask_to_end(taken_away=number == signal.SIGTERM)
            signal.signal(number, before[number])

        before = {int(number): signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number, handler in before.items():
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, ask)


def _take_share_of_cores(place: Place) -> None:
    """Where a launcher leaves all cores to each of several workers, torch takes its share of them."""
    if place.beside is None or "OMP_NUM_THREADS" in os.environ:
        return
    import torch

    torch.set_num_threads(len(share_of(cores_here(), place.local_rank, place.beside)))
