"""Where the runs of a sweep are compared, of which the best are resumed: successive halving.

Jamieson & Talwalkar 2016 (arXiv:1502.07943), algorithm 1, with rungs that are ETA times as far apart from each other
(Li et al. 2018, arXiv:1810.05934).
"""

from __future__ import annotations

from collections.abc import Sequence

from volary.errors import BadInput
from volary.session.spec import Session
from volary.session.values.period import NEVER, Period

ETA = 3  # of so many combinations one is kept; so many times as long is the way to the next rung


def rungs(sessions: Sequence[Session], combinations: int) -> list[Period]:
    """The rungs before the end of the runs, each with an evaluation; at the last one more than one is left.

    sessions: of all runs, which have one length. Raises BadInput if there can be none.
    """
    if combinations < ETA:
        raise BadInput(f"--stop-early keeps one of {ETA}; accepted: {ETA} combinations or more, and not {combinations}")
    lengths = {(one.train.epochs, one.train.steps, one.evaluate.every) for one in sessions}
    if len(lengths) > 1:
        raise BadInput(
            "--stop-early compares runs after the same steps; accepted: train.epochs, train.steps and evaluate.every "
            "with one value"
        )
    if any(one.train.stop_at != NEVER for one in sessions):
        raise BadInput("--stop-early says where runs stop; accepted with it: train.stop_at=never")
    ((epochs, steps, every),) = lengths
    if every == NEVER:
        raise BadInput("--stop-early goes by the validation metric, and evaluate.every is never; accepted: a period")
    length = epochs if every.unit == "epochs" else steps
    if length is None:
        wanted = "train.epochs" if every.unit == "epochs" else "train.steps"
        raise BadInput(f"--stop-early needs lengths in one unit, and evaluate.every is '{every}'; accepted: {wanted}")
    found, left = list[Period](), combinations
    count = int(length / ETA // every.count)
    while count and left >= ETA:
        found.append(Period(count * every.count, every.unit))
        count, left = count // ETA, left // ETA
    if not found:
        raise BadInput(
            f"--stop-early compares runs before their end, which have {length:g} {every.unit}, and evaluate.every is "
            f"'{every}'; accepted: at most one part in {ETA} of the run"
        )
    return found[::-1]
