"""The task of a run, a session or a user's own loop: laid into a new run directory, and read from one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from volary.errors import RunError
from volary.monitor.outline import outline
from volary.run.directory import RunDirectory
from volary.session.script import Script
from volary.session.spec import Session
from volary.session.values.url import Url

Task = Session | Script


def create(task: Task) -> RunDirectory:
    """Make the run directory of `task`, named by the session or with the first free number. Raises RunError."""
    path = task.checkpoint.path
    checkpoints = str(path) if isinstance(path, Url) else path
    name, text = task.run.name, task.to_yaml()
    return RunDirectory.create(Path(task.run.folder), name, stem(task), text, checkpoints=checkpoints)


def session_of(directory: RunDirectory, overrides: Sequence[str] = ()) -> Session:
    """The session that the run is a run of. Raises RunError if it is missing, or the loop was the user's own."""
    try:
        text = directory.session.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise directory.unreadable(directory.session, error) from None
    if text.startswith(("function:", "program:")):
        raise RunError(f"{directory.path} is a run of a training loop of your own; accepted: a run of a session")
    return Session.read(directory.session, overrides)


def task_of(directory: RunDirectory, overrides: Sequence[str] = ()) -> Task:
    """Read the task of a run, with settings as `strategy.workers=4`. Raises RunError if that cannot be read."""
    own = outline(directory.session).own_loop
    return Script.read(directory.session, overrides) if own else session_of(directory, overrides)


def stem(task: Task) -> str:
    """The name of an unnamed run, before its number: network and source, or the function or program."""
    if isinstance(task, Script):
        return task.name
    settings = task.settings()
    network = str(settings.get("network.name") or settings["network"])
    if ":" not in network:  # of the zoo
        network = str(settings.get("network.model", network)) + str(settings.get("network.depth", ""))
    source = str(settings.get("data.source.name") or settings["data.source"])
    return f"{_plain(network)}-{_of_files(settings) or _plain(source)}"


def _of_files(settings: Mapping[str, Any]) -> str:
    """A name from the source's files: three data sets may all be `idx`."""
    folder, path = settings.get("data.source.folder"), settings.get("data.source.path")
    name = Path(folder).name if isinstance(folder, str) else Path(path).stem if isinstance(path, str) else ""
    return re.sub(r"[^\w-]+", "-", name.lower()).strip("-")


def _plain(name: str) -> str:
    """A plug-in's name, or the last part of a reference to the user's code."""
    return name.partition(" in ")[0].rpartition(":")[2].replace(".", "-").lower()
