"""The command that resumes a run, by what its directory holds: in words for a message, never stored in the run."""

from __future__ import annotations

import sys

from volary.errors import RunError
from volary.run.checkpoints import SHARED, Checkpoints
from volary.run.directory import RunDirectory


def is_resumable(directory: RunDirectory) -> bool:
    """Whether the run's state is kept: a training loop of the user's own has something of it once it called save.

    True if that is not known, as the store of its checkpoints does not answer: to resume it says so. False if its
    folder has gone.
    """
    if not directory.path.is_dir():
        return False
    try:
        own = directory.session.read_text(encoding="utf-8").startswith(("function:", "program:"))
    except OSError:
        return True
    if not own:
        return True
    checkpoints = Checkpoints(directory.checkpoints)
    try:
        steps = checkpoints.steps()
        # what servers keep of a loop that saves nothing says nothing of where it was
        return bool(steps) and SHARED in checkpoints.manifest(steps[-1]).files
    except RunError:
        return True


def resuming(directory: RunDirectory) -> str:
    """One line: from which step the run resumes and by which command; empty for a run that cannot be resumed.

    The path is written as from the current folder, so that it is made when it is shown.
    """
    if not is_resumable(directory):
        return ""
    try:
        steps = Checkpoints(directory.checkpoints).steps()
    except RunError as error:
        return f"{error}; resume: volary resume {directory.argument}"
    start = f"resume from step {steps[-1]}" if steps else "begin again, as there is no checkpoint yet"
    return f"{start}: volary resume {directory.argument}"


if __name__ == "__main__":  # for a process that has no Volary loaded, of the run at the path that it names
    print(
        resuming(RunDirectory(sys.argv[1])) or "a training loop of your own, which has saved nothing", file=sys.stderr
    )
