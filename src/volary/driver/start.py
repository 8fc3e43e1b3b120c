"""Begin a run of a session, or a new life of one, on the engine that it names."""

from __future__ import annotations

import sys
from pathlib import Path

from volary.driver.drive import Drive, Meeting
from volary.driver.ending import Ending, Watcher
from volary.driver.watch import Rules
from volary.engine._base import Handle, Launch
from volary.errors import BadInput, RunError
from volary.run.directory import RunDirectory
from volary.run.reader import RunReader
from volary.session.spec import Session, Strategy

WORKER = (sys.executable, "-m", "volary.worker")


def start(session: Session, watcher: Watcher) -> Ending:
    """Make the run directory and train. Raises BadInput before anything starts, and what `Drive.run` raises."""
    check(session)
    directory = create(session)
    with directory.lock():
        return drive(directory, session, watcher)


def resume(directory: RunDirectory, watcher: Watcher) -> Ending:
    """Go on with a run from its newest whole checkpoint. Raises RunError if it is being written, or is finished."""
    session = Session.read(directory.session)
    with directory.lock():
        with RunReader(directory) as reader:
            if reader.state() == "finished":
                raise RunError(f"{directory.path} is finished; there is nothing to go on with")
        check(session)
        return drive(directory, session, watcher)


def check(session: Session) -> None:
    """What can be known before a run directory is made. Raises BadInput."""
    session.check()
    workers = session.strategy.workers
    if (reason := session.engine.check(workers)) is not None:
        raise BadInput(f"engine: {reason}")
    count = getattr(session.data.source, "count", lambda _: None)("train")
    if count is not None and count < workers:
        raise BadInput(f"strategy.workers is {workers}, and the data has {count} samples; accepted: at most {count}")


def create(session: Session) -> RunDirectory:
    """The session's run directory, new."""
    return RunDirectory.create(Path(session.run.folder), session.run.name, stem_of(session), session.to_yaml())


def stem_of(session: Session) -> str:
    """What an unnamed run is called, before its number: network and source."""
    names = [str(session.settings().get(f"{field}.name") or session.settings().get(field)) for field in _NAMED]
    return "-".join(name.rpartition(":")[2].split(" ")[0].lower() or "own" for name in names)


_NAMED = ("network", "data.source")


def rules_of(strategy: Strategy) -> Rules:
    """The bounds that a session sets."""
    return Rules(strategy.suspect_after_s, strategy.give_up_after_s, strategy.startup_timeout_s)


def drive(directory: RunDirectory, session: Session, watcher: Watcher) -> Ending:
    """Drive one life of a run whose lock is held."""
    workers = session.strategy.workers

    def launch(meeting: Meeting) -> Handle:
        meet = f"{meeting.host}:{meeting.port}"
        handle: Handle = session.engine.launch(Launch(directory, WORKER, workers, meet, meeting.life))
        return handle

    return Drive(directory, workers, rules_of(session.strategy), watcher).run(launch)
