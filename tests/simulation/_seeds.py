"""Many schedules of one test, and how to see one of them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

SEED = "VOLARY_SEED"

test = ""  # that runs, as pytest names it


def every(seeds: Iterable[int], play: Callable[[int], None]) -> None:
    """Play all seeds, or only that of the environment; the first that fails is told, and how to repeat it."""
    chosen = os.environ.get(SEED)
    for seed in seeds if chosen is None else [int(chosen)]:
        try:
            play(seed)
        except Exception as problem:
            again = f"{SEED}={seed} .venv/bin/pytest '{test}'"
            if chosen is not None:
                raise
            pytest.fail(f"seed {seed}: {type(problem).__name__}: {problem}\nAgain, exactly so: {again}", pytrace=False)
