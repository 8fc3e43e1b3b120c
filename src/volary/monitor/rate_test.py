"""A range test of the learning rate: the loss of each step beside the rate that it was learnt with, which grows.

Smith 2017, arXiv:1506.01186; the loss is smoothed, and the test over, as in fastai's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from volary.monitor.curves import Curve
from volary.monitor.wording import number
from volary.run.database.course.curves import Point
from volary.run.database.reader import RunReader

_SMOOTHED = 0.9  # share of the losses before in the mean that moves along
_SETTLED = round(1 / (1 - _SMOOTHED))  # losses after which that mean is of as many as later ones
_WINDOWS = 20  # part of the test over which a fall is looked at
_DIVERGED = 4.0  # times the least loss
_NOISE = 1e-6  # of the first loss: a moving mean of equal losses is not quite the same at each step
_WIDTH, _HEIGHT, _MARGIN = 640, 360, 60  # of the picture, in pixels


@dataclass(frozen=True)
class RateTest:
    """rates, losses: of each step until the loss has diverged; losses are smoothed."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def least(self) -> float | None:
        """The rate with the least loss; None if no loss is a number."""
        return min(zip(self.losses, self.rates, strict=True))[1] if self.losses else None

    @property
    def steepest(self) -> float | None:
        """The rate at which the loss falls fastest, before it is least; None if it never falls."""
        end = self.rates.index(self.least) if self.least is not None else 0
        # a mean of the first few losses swings from step to step, whatever their rate is
        begin, over = min(_SETTLED, end // 2), max(1, len(self.losses) // _WINDOWS)
        falls = [
            (self.losses[place] - self.losses[place - over], self.rates[place - over // 2])
            for place in range(begin + over, end + 1)
        ]
        fall, rate = min(falls, default=(0.0, None))
        return rate if fall < -_NOISE * abs(self.losses[0]) else None

    @property
    def suggested(self) -> float | None:
        """A rate to begin with: where the loss falls fastest, and no more than a tenth of where it is least."""
        if self.steepest is None or self.least is None:
            return None
        return min(self.steepest, self.least / 10)

    def curve(self) -> Curve:
        """The losses over the steps, which are as far from each other as the logarithms of their rates."""
        return Curve(
            "smoothed loss", tuple(Point(step, loss, loss, loss) for step, loss in enumerate(self.losses, start=1))
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything in plain values, for `--json`."""
        return asdict(self) | {"steepest": self.steepest, "least": self.least, "suggested": self.suggested}

    def svg(self) -> str:
        """The losses over the rates, these on a logarithmic axis, as an SVG file."""
        low, high = min(self.losses), max(self.losses)
        first, last = math.log10(self.rates[0]), math.log10(self.rates[-1])

        def place(rate: float, loss: float) -> tuple[float, float]:
            across = (math.log10(rate) - first) / ((last - first) or 1.0)
            up = (loss - low) / ((high - low) or 1.0)
            return _MARGIN + across * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - up * (_HEIGHT - 2 * _MARGIN)

        line = " ".join("{:.1f},{:.1f}".format(*place(*one)) for one in zip(self.rates, self.losses, strict=True))
        words = [
            _text(_MARGIN - 8, place(self.rates[0], loss)[1], number(loss), "end")
            for loss in dict.fromkeys((low, high))
        ]
        powers = range(math.ceil(first), math.floor(last) + 1)
        words += [_text(place(10.0**one, low)[0], _HEIGHT - _MARGIN + 20, f"1e{one}", "middle") for one in powers]
        words.append(_text(_WIDTH / 2, _HEIGHT - 12, "learning rate; smoothed loss", "middle"))
        if self.steepest is not None:
            x, y = place(self.steepest, self.losses[self.rates.index(self.steepest)])
            words.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#c33"/>')
            words.append(_text(x + 8, y - 8, f"falls fastest at {number(self.steepest)}", "start"))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
            f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
            f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>\n'
            + "\n".join(words)
            + "\n</svg>\n"
        )


def rates_between(low: float, high: float, steps: int) -> list[float]:
    """Return `steps` rates from `low` to `high`, each the same factor above the one before."""
    return [low * (high / low) ** (step / (steps - 1)) for step in range(steps)]


def rate_test(reader: RunReader, rates: Sequence[float]) -> RateTest:
    """The result of a run that learnt each of its steps with the next of these rates, as far as it came."""
    by_step: dict[int, list[float]] = {}
    for row in reader.steps(after=0):
        by_step.setdefault(row.step, []).append(row.loss)
    mean, smoothed = 0.0, list[float]()
    for count, step in enumerate(sorted(by_step), start=1):
        loss = sum(by_step[step]) / len(by_step[step])
        mean = _SMOOTHED * mean + (1 - _SMOOTHED) * loss
        now = mean / (1 - _SMOOTHED**count)
        if not math.isfinite(now) or count > len(rates) or (smoothed and now > _DIVERGED * max(0.0, min(smoothed))):
            break
        smoothed.append(now)
    return RateTest(tuple(rates[: len(smoothed)]), tuple(smoothed))


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
