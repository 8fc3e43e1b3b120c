"""Advice on how a run that has ended early goes on: resumed as it is, or with what has to change first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.errors import BadInput, NotFinite
from volary.errors.raised import shown
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.run.resuming import is_resumable, resuming
from volary.session.spec import Session

if TYPE_CHECKING:
    from volary.monitor.digest import Digest

IN_THE_DATA = "the inputs of its batch"
OTHERWISE = "or clip gradients ({clip}=1), or leave such batches out (train.on_nonfinite=skip)"


def advice_on(digest: Digest) -> list[str]:
    """Lines as of `advice`; none for a run that has not ended early."""
    early = digest.state in ("stopped", "failed", "lost")
    return advice(digest.directory, digest.error, digest.message) if early else []


def advice(directory: RunDirectory, error: str, message: str) -> list[str]:
    """Lines: commands and what to change before; none for a run that cannot be resumed.

    error: the name of the kind of error with which it ended, if it did. message: of the error.
    """
    if error == NotFinite.__name__:
        return _after_not_finite(directory, message)
    return [how] if (how := resuming(directory)) else []


def _after_not_finite(directory: RunDirectory, message: str) -> list[str]:
    """The same settings from the same checkpoint give it again: the command that trains with half the learning rate and
    all other settings as they were, and what else. message: where the loss became so, as the worker said.
    """
    if not is_resumable(directory):
        return []
    if IN_THE_DATA in message:
        return ["mend these samples, or leave such batches out (train.on_nonfinite=skip)"]
    try:
        session = Session.read(directory.session)
        settings = session.settings()
    except BadInput:  # the user's file may have gone meanwhile
        session, settings = None, {}
    rate, name = settings.get("optimizer.lr"), settings.get("run.name")
    common = session is None or session.strategy.consistency.has_common_step
    clip = "train.clip_norm" if common else "train.clip_value"
    lines = ["resumed with the same settings it diverges again"]
    if isinstance(rate, float | int):
        named = f" run.name={_free(directory, str(name))}" if name else ""
        lines[0] += (
            f"; lower the learning rate: volary train {shown(str(directory.session))} optimizer.lr={rate / 2:g}{named}"
        )
        if steps := Checkpoints(directory.checkpoints).steps():
            lines.append(f"or from step {steps[-1]}: volary resume {directory.argument} optimizer.lr={rate / 2:g}")
    return [*lines, OTHERWISE.format(clip=clip)]


def _free(directory: RunDirectory, name: str) -> str:
    number = 2
    while (directory.path.parent / f"{name}-{number}").exists():
        number += 1
    return f"{name}-{number}"
