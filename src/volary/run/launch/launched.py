"""The launch that a run belongs to: noted in its directory, so that a restarted rank 0 finds the run that it began."""

from __future__ import annotations

from volary.errors import RunError
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file


def note_launch(directory: RunDirectory, launch: str) -> None:
    """Note that all attempts of the run are of this launch. Raises RunError if that cannot be written."""
    try:
        replace_file(Disk(), directory.launch, launch.encode(), mode=0o600)
    except OSError as error:
        raise RunError(f"{directory.launch}: cannot be written: {error.strerror}") from None


def launched_by(directory: RunDirectory, launch: str) -> bool:
    """Whether the run is of this launch, and not finished."""
    try:
        with open_regular(directory.launch) as file:
            if file.read() != launch.encode():
                return False
        with RunReader(directory) as reader:
            return reader.info().get("state") != "finished"
    except (OSError, RunError):
        return False


def is_stopped_by_user(directory: RunDirectory) -> bool:
    """Whether the newest attempt ended as the user had asked it to: by Ctrl-C, `volary stop`, or the page."""
    try:
        with RunReader(directory) as reader:
            info = reader.info()
            asked = any(event.attempt == attempt_in(info) for event in reader.events(kind="stopping"))
            return asked and info.get("state") == "stopped"
    except (OSError, RunError):
        return False


def is_terminated(directory: RunDirectory) -> bool:
    """Whether the newest attempt ended as its machine is taken away, or was shut down: it is to be resumed."""
    try:
        with RunReader(directory) as reader:
            info = reader.info()
    except RunError:
        return False
    return info.get("state") == "stopped" and info.get("terminated") == str(attempt_in(info))
