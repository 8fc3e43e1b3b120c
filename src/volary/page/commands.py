"""Commands of `volary` that the page starts, each a process of its own that outlives the page."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from volary.errors import BadInput, RunError
from volary.jobs.settings import queues_all_runs
from volary.page.overview.folder import Folder
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory
from volary.run.machine.environment import started_by

ANSWER_S = 30.0  # a command that has not begun to train by then goes on, and nobody waits for it
AT_MOST_S = 300.0  # for what is asked of a command, on a busy machine
LOOK_S = 0.1
MESSAGE_BYTES = 4096  # of what a refused command said, its end


def resume(directory: RunDirectory, overrides: Sequence[str]) -> None:
    """Resume the run. Raises BadInput with what `volary resume` says if it cannot be."""
    if queues_all_runs():
        _submit([str(directory.path), *overrides])
        return
    attempt, step = _attempt(directory), _step(directory)
    _start(
        ["resume", str(directory.path), *overrides, "--quiet"],
        lambda _: _attempt(directory) > attempt and _step(directory) != step,
    )


def join(directory: RunDirectory, workers: int) -> None:
    """Add workers of this machine to the run. Raises BadInput with what `volary join` says if they cannot be."""
    joined = _joined(directory)
    _start(
        ["join", str(directory.path), "--workers", str(workers), "--quiet"],
        lambda _: _joined(directory) >= joined + workers,
    )


def train(session: Path, overrides: Sequence[str], folder: Folder, *, queued: bool = False) -> str:
    """Start a run in the folder; its name. Raises BadInput with what `volary train` says if it cannot be.

    queued: whether it waits in the queue, whatever the user's settings say.
    """
    # in the page's own folder, whatever the session says: there it is seen
    words = [str(session), *overrides, f"run.folder={json.dumps(str(folder.above))}"]
    if queued or queues_all_runs():
        return folder.name_of(_submit(words)) or ""
    before = set(folder.runs())

    def new(process: int) -> str:
        """Others may begin runs in the folder meanwhile: the one that this process has made."""
        found = ((name, run.environment) for name, run in folder.runs().items() if name not in before)
        return next((name for name, file in found if started_by(file) == process), "")

    process = _start(
        ["train", *words, "--quiet"], lambda process: bool(name := new(process)) and _step(folder.run(name)) > 0
    )
    if not (name := new(process)):
        raise BadInput("the run has not begun yet; it is listed as soon as it has")
    return name


def _start(arguments: Sequence[str], begun: Callable[[int], bool]) -> int:
    """Start `volary` with these arguments, and wait until it has begun, or has said why not; its process number.

    begun: asked with that number.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "volary", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
        threading.Thread(target=process.wait, name="page-command", daemon=True).start()  # or it would stay a zombie
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            ended = process.poll()
            if _has(partial(begun, process.pid)):
                break
            if ended:
                raise BadInput(_end_of(output) or f"volary {arguments[0]} ended with code {ended}")
            if ended is not None:
                break
            time.sleep(LOOK_S)
        return process.pid


def answer(words: Sequence[str]) -> Any:
    """The answer of a command of `volary`, in JSON. Raises BadInput with the command's message if it fails."""
    command = [sys.executable, "-m", "volary", *words]
    try:
        output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=AT_MOST_S)
    except subprocess.TimeoutExpired:
        raise BadInput(f"volary {words[0]} did not answer within {AT_MOST_S:.0f} s; try it in a terminal") from None
    if output.returncode:
        raise BadInput(output.stderr[-MESSAGE_BYTES:].decode(errors="replace").strip())
    return json.loads(output.stdout)


def look(path: Path, target: str) -> Any:
    """The finding of `volary data look` at the path, as JSON has it. Raises BadInput with its message otherwise."""
    return answer(["data", "look", str(path), f"--target={target}", "--json"])


def _submit(words: Sequence[str]) -> Path:
    """Queue a run; where it is. Raises BadInput with what `volary submit` says if that cannot be."""
    return Path(answer(["submit", *words, "--json"])["run"])


def _has(begun: Callable[[], bool]) -> bool:
    try:
        return begun()
    except RunError:  # it is being made, or removed again
        return False


def _end_of(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read()[-MESSAGE_BYTES:].decode(errors="replace").strip()


def _attempt(directory: RunDirectory) -> int:
    with RunReader(directory) as reader:
        return attempt_in(reader.info())


def _step(directory: RunDirectory) -> int:
    with RunReader(directory) as reader:
        return reader.last_step()


def _joined(directory: RunDirectory) -> int:
    with RunReader(directory) as reader:
        return sum(1 for _ in reader.events(kind="joined"))
