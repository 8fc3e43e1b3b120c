"""The settings of a sweep: `optimizer.lr=0.01,0.1 strategy.codec=none,onebit` are four combinations.

Of a range, `optimizer.lr=0.001..0.1`, and of many values some combinations are drawn (Bergstra & Bengio 2012).
"""

from __future__ import annotations

import math
import random
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
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\.\.({_NUMBER})\s*")
_TRIES = 100  # of each run, to draw a combination that is not there yet


@dataclass(frozen=True)
class ValueRange:
    """Numbers from `low` to `high`, all as likely; their logarithms, if both are above 0 and ten times apart or more.

    whole: whole numbers.
    """

    low: float
    high: float
    whole: bool

    @classmethod
    def read(cls, text: str) -> ValueRange | None:
        """Read `0.001..0.1`; None if it is no range. Raises BadInput for one that is empty."""
        if (found := _RANGE.fullmatch(text)) is None:
            return None
        low, high = map(float, found.groups())
        if not -math.inf < low < high < math.inf:
            raise BadInput(f"{text.strip()} is an empty range; accepted: the least value, .., and a greater one")
        return cls(low, high, whole=all(re.fullmatch(r"[-+]?\d+", one) for one in found.groups()))

    def draw(self, generator: random.Random) -> str:
        """One of them, as YAML."""
        if self.low > 0 and self.high >= 10 * self.low:
            value = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        elif self.whole:
            return str(generator.randint(round(self.low), round(self.high)))
        else:
            value = generator.uniform(self.low, self.high)
        return str(round(value)) if self.whole else flow(float(f"{value:.3g}"))


@dataclass(frozen=True)
class Grid:
    """varied: by setting its values, as YAML, or a range, in the order of the command line. fixed: overrides of all."""

    varied: Mapping[str, Sequence[str] | ValueRange]
    fixed: Sequence[str]

    @classmethod
    def read(cls, overrides: Sequence[str]) -> Grid:
        """Read `a.b=1,2` and `a.b=1..2` (varied) and `a.b=1` (fixed). Raises SessionError for what is none."""
        problems = Problems()
        varied: dict[str, Sequence[str] | ValueRange] = {}
        fixed = []
        for text in overrides:
            name, _, value = text.partition("=")
            if (between := ValueRange.read(value)) is not None:
                varied[name.strip()] = between
                continue
            values = parse(f"[{value}]", COMMAND_LINE, Path.cwd(), Problems(), numbered=False)
            if values is not None and len(values.value) > 1:
                varied[name.strip()] = list(dict.fromkeys(flow(each.plain()) for each in values.value))
            elif read_override(text, problems):
                fixed.append(text)
        problems.raise_if_any()
        return cls(varied, fixed)

    def members(self, session: Session, seeds: int, drawn: int | None = None) -> dict[str, dict[str, str]]:
        """The settings of each run, by its name: a run for each combination, the last setting varying fastest.

        seeds: so many runs of each, with seeds from the session's on. Of data in folds each is trained, too. drawn: so
        many combinations alone, at random, by the session's seed; None: all. session: with the fixed overrides. Raises
        BadInput for too many, or for seeds that are varied in two ways.
        """
        varied = {name: values for name, values in self.varied.items() if not isinstance(values, ValueRange)}
        if drawn is not None:
            if not self.varied:
                raise BadInput("--random draws values of settings; accepted with it: optimizer.lr=0.001..0.1, or lists")
            varied = {}
        elif between := [name for name in self.varied if name not in varied]:
            raise BadInput(f"{between[0]} is a range, of which values are drawn; accepted: --random 20, or a list")
        first = [{}] if drawn is None else self._drawn(random.Random(session.train.seed), drawn)
        if seeds > 1:
            if SEED in self.varied:
                raise BadInput(f"--seeds and {SEED}=... both vary the seed; accepted: one of them")
            varied[SEED] = [str(session.train.seed + number) for number in range(seeds)]
        if session.data.folds and session.data.fold is None and FOLD not in self.varied:
            varied[FOLD] = [str(number) for number in range(session.data.folds)]
        count = len(first)
        for values in varied.values():
            count *= len(values)
        if count > MOST:
            raise BadInput(f"these are {count:,} runs; accepted: up to {MOST:,}")
        if count == 1:
            once = "".join(f"{setting} is {values[0]} each time; " for setting, values in varied.items())
            raise BadInput(f"{once}a sweep varies something: optimizer.lr=0.01,0.1, or --seeds 3")
        repeated = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
        combinations = [one | another for one in first for another in repeated]
        names = [_name(values) for values in combinations]
        plain = len(set(names)) == count and max(map(len, names)) <= _LONGEST_NAME
        return {
            name if plain else f"run-{number:03d}": values
            for number, (name, values) in enumerate(zip(names, combinations, strict=True), start=1)
        }

    def _drawn(self, generator: random.Random, count: int) -> list[dict[str, str]]:
        """Draw `count` different combinations of what is varied, or as many as there are."""
        found: dict[tuple[str, ...], None] = {}
        for _ in range(_TRIES * count):
            values = self.varied.values()
            found[tuple(v.draw(generator) if isinstance(v, ValueRange) else generator.choice(v) for v in values)] = None
            if len(found) == count:
                break
        return [dict(zip(self.varied, values, strict=True)) for values in found]


def _name(values: Mapping[str, str]) -> str:
    words = [f"{setting.removesuffix('.name').rpartition('.')[2]}-{value}" for setting, value in values.items()]
    return re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-._")
