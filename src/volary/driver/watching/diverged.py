"""Advice after a loss that was not a number: the same settings from the same checkpoint give it again."""

from __future__ import annotations

from volary.errors import BadInput
from volary.errors.raised import shown
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.run.resuming import is_resumable
from volary.session.spec import Session

IN_THE_DATA = "the inputs of its batch"
OTHERWISE = "or clip gradients ({clip}=1), or leave such batches out (train.on_nonfinite=skip)"


def advice(directory: RunDirectory, message: str) -> list[str]:
    """Lines: the command that trains with half the learning rate and all other settings as they were, and what else.

    message: where the loss became so, as the worker said.
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
