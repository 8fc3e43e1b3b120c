"""The settings of a sweep: `optimizer.lr=0.01,0.1 strategy.codec=none,onebit` are four combinations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from volary.errors import BadInput
from volary.session.misplaced import COMMAND_LINE
from volary.session.reading.overrides import read_override
from volary.session.reading.problems import Problems
from volary.session.reading.yaml_file import parse
from volary.session.resolved import flow
from volary.session.spec import Session

MOST = 1000
SEED = "train.seed"
FOLD = "data.fold"
_LONGEST_NAME = 80


@dataclass(frozen=True)
class Grid:
    """varied: by setting its values, as YAML, in the order of the command line. fixed: overrides of all runs."""

    varied: Mapping[str, Sequence[str]]
    fixed: Sequence[str]

    @classmethod
    def read(cls, overrides: Sequence[str]) -> Grid:
        """Read `a.b=1,2` (varied) and `a.b=1` (fixed). Raises SessionError for what is neither."""
        problems = Problems()
        varied: dict[str, list[str]] = {}
        fixed = []
        for text in overrides:
            name, _, value = text.partition("=")
            values = parse(f"[{value}]", COMMAND_LINE, Path.cwd(), Problems(), numbered=False)
            if values is not None and len(values.value) > 1:
                varied[name.strip()] = list(dict.fromkeys(flow(each.plain()) for each in values.value))
            elif read_override(text, problems):
                fixed.append(text)
        problems.raise_if_any()
        return cls(varied, fixed)

    def members(self, session: Session, seeds: int) -> dict[str, dict[str, str]]:
        """The settings of each run, by its name: a run for each combination, the last setting varying fastest.

        seeds: so many runs of each, with seeds from the session's on. Of data in folds each is trained, too.
        session: with the fixed overrides. Raises BadInput for too many, or for seeds that are varied in two ways.
        """
        varied = dict(self.varied)
        if seeds > 1:
            if SEED in varied:
                raise BadInput(f"--seeds and {SEED}=... both vary the seed; accepted: one of them")
            varied[SEED] = [str(session.train.seed + number) for number in range(seeds)]
        if session.data.folds and session.data.fold is None and FOLD not in varied:
            varied[FOLD] = [str(number) for number in range(session.data.folds)]
        count = 1
        for values in varied.values():
            count *= len(values)
        if count > MOST:
            raise BadInput(f"these are {count:,} runs; accepted: up to {MOST:,}")
        if count == 1:
            once = "".join(f"{setting} is {values[0]} each time; " for setting, values in varied.items())
            raise BadInput(f"{once}a sweep varies something: optimizer.lr=0.01,0.1, or --seeds 3")
        combinations = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
        names = [_name(values) for values in combinations]
        plain = len(set(names)) == count and max(map(len, names)) <= _LONGEST_NAME
        return {
            name if plain else f"run-{number:03d}": values
            for number, (name, values) in enumerate(zip(names, combinations, strict=True), start=1)
        }


def _name(values: Mapping[str, str]) -> str:
    words = [f"{setting.removesuffix('.name').rpartition('.')[2]}-{value}" for setting, value in values.items()]
    return re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-._")
