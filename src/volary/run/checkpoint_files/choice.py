"""Finds the checkpoint that `best`, `last` or a step means."""

from __future__ import annotations

from collections.abc import Callable

from volary.errors import RunError
from volary.run.checkpoints import Checkpoints, Manifest
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory


def choose(directory: RunDirectory, which: str | None, say: Callable[[str], None]) -> Manifest:
    """The verified checkpoint that `best`, `last`, a step or None means. Raises RunError if it is not there or damaged.

    None: the best one, or the newest whole one where nothing was measured. say: called with a line for each that is not
    whole.
    """
    checkpoints = Checkpoints(directory.checkpoints)
    if which == "last":
        return _newest(directory, checkpoints, say)
    if which in (None, "best"):
        best = _best(directory, checkpoints)
        if best is None and which is None:
            return _newest(directory, checkpoints, say)
        if best is None:
            raise RunError(f"no checkpoint of {directory.path} has a metric; accepted: last, or {_known(checkpoints)}")
        return checkpoints.verify(best)
    if which.isdecimal() and int(which) in checkpoints.steps():
        return checkpoints.verify(int(which))
    raise RunError(f"--checkpoint is {which!r}; accepted: best, last, or {_known(checkpoints)}")


def _best(directory: RunDirectory, checkpoints: Checkpoints) -> int | None:
    with RunReader(directory) as reader:
        sign = -1.0 if reader.info().get("higher_is_better") == "False" else 1.0
    found = [(manifest.metric, manifest.step) for manifest in map(checkpoints.manifest, checkpoints.steps())]
    measured = [(sign * metric, step) for metric, step in found if metric is not None]
    return max(measured)[1] if measured else None


def _newest(directory: RunDirectory, checkpoints: Checkpoints, say: Callable[[str], None]) -> Manifest:
    manifest, warnings = checkpoints.newest_whole()
    for warning in warnings:
        say(f"warning: {warning}")
    if manifest is None:
        raise RunError(f"{directory.path} has no whole checkpoint")
    return manifest


def _known(checkpoints: Checkpoints) -> str:
    return f"one of the steps {', '.join(map(str, checkpoints.steps())) or '(there is none)'}"
