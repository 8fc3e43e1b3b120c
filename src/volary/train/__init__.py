"""The worker: the loop, schedules, evaluation, checkpoints, faults. Guide: docs/training.md

loop.py is the training loop; model.py makes network and data of a session, worker/ all that a worker trains with;
strategies/strategy.py puts the four axes together.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volary.train.afterwards import check_session as check_session
    from volary.train.afterwards import evaluate_run as evaluate_run

__all__ = ["check_session", "evaluate_run"]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'volary.train' has no attribute {name!r}")
    return getattr(import_module("volary.train.afterwards"), name)
