"""A range test of the learning rate: what is read of a run whose rate grows, and the picture of it."""

from __future__ import annotations

import itertools
import math
import random
from xml.etree import ElementTree

import pytest

from monitor._made_runs import journal, new_run, row
from volary.monitor.rate_test import RateTest, rate_test, rates_between
from volary.run.database.reader import RunReader

_names = itertools.count()


def of(losses: list[float], low: float = 1e-4, high: float = 1.0) -> RateTest:
    directory = new_run(f"tune-lr-{next(_names)}")
    with journal(directory) as run:
        run.steps([row(step, rank, 0.0, 0.0, loss=loss) for step, loss in enumerate(losses, 1) for rank in (0, 1)])
    with RunReader(directory) as reader:
        return rate_test(reader, rates_between(low, high, len(losses)))


def test_rates_are_the_same_factor_apart():
    assert rates_between(0.001, 10.0, 5) == pytest.approx([0.001, 0.01, 0.1, 1.0, 10.0])


def test_the_rate_where_the_loss_falls_fastest_is_found_and_the_test_is_over_when_it_has_diverged():
    falls = [2.0] * 20 + [2.0 - 0.1 * n for n in range(1, 16)] + [0.5] * 30 + [10.0**n for n in range(20)]
    found = of(falls)
    assert len(found.losses) == len(found.rates) < 70
    assert found.losses[:20] == pytest.approx([2.0] * 20)
    assert found.steepest is not None
    assert found.least is not None
    place = found.rates.index(found.steepest)
    assert 25 <= place <= 40
    assert place < found.rates.index(found.least)
    assert found.suggested == min(found.steepest, found.least / 10)


def test_noise_of_the_first_losses_is_no_fall():
    drawn = random.Random(1)
    noise = [0.8 + 0.05 * drawn.random() - 0.2 * (not n) for n in range(60)]
    falls = [0.8 - 0.012 * n + 0.05 * drawn.random() for n in range(36)]
    found = of([1.0, *noise, *falls], low=1e-6, high=10.0)
    assert found.steepest is not None
    assert found.rates.index(found.steepest) > 60


@pytest.mark.parametrize("losses", [[1.0] * 10, [float(n) for n in range(1, 11)]])
def test_a_loss_that_never_falls_suggests_nothing(losses):
    assert of(losses).suggested is None


def test_a_loss_that_is_no_number_ends_it():
    assert len(of([2.0, 1.5, math.nan, 1.0]).losses) == 2
    assert of([math.nan, 1.0]).losses == ()


def test_the_picture_is_svg_with_a_logarithmic_axis():
    found = of([3.0 - 0.02 * n for n in range(50)])
    root = ElementTree.fromstring(found.svg())
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"1e-4", "1e-2", "1e0"} <= set(words)
    (line,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, one.split(","))) for one in line.attrib["points"].split()]
    across = [second[0] - first[0] for first, second in itertools.pairwise(points)]
    assert across == pytest.approx([across[0]] * 49, abs=0.2)
