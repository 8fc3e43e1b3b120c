"""L-BFGS as the coordinator of servers (Sandblaster: Dean et al., NIPS 2012, algorithm 2): no vector ever comes here.

Its directions are sums of vectors that servers keep, with factors that follow from their inner products alone (Chen et
al., NIPS 2014). Iterates are those of torch.optim.LBFGS with the same line search, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from volary.server.batch_methods.inner_products import InnerProducts, two_loops
from volary.server.batch_methods.strong_wolfe import SearchPoint, Trial, searched
from volary.server.protocol.vectors import GRADIENT, PARAMETERS, Asked, Combine, FoundProducts

PREVIOUS = "previous gradient"
DIRECTION = "direction"
BASE = "base"  # parameters where the line search began
CURVED = 1e-10  # inner product of a step and the gradient's change above which they are remembered
STEEP = 1e-9  # slope, downwards, below which there is nothing to gain


@dataclass(frozen=True, kw_only=True)
class LbfgsSettings:
    """history_size: steps that are remembered. tolerance_grad: largest value of a gradient at which nothing is changed
    any more. searches: each step ends where the loss meets the strong Wolfe conditions; else it is the learning rate.
    """

    history_size: int
    tolerance_grad: float
    searches: bool


class LineSearch(Struct):
    """A search that has begun. loss, slope: where it began. first: the first step. size: the largest magnitude of the
    direction. seen: of each trial the loss, the slope and the largest magnitude of the gradient. kept: trials whose
    gradients are kept.
    """

    loss: float
    slope: float
    first: float
    size: float = 0.0
    seen: list[tuple[float, float, float]] = []
    kept: list[int] = []


class LbfgsState(Struct):
    """The coordinator's memory, as a checkpoint has it. pairs: places of steps and changes of gradients that are
    kept, oldest first, of `made` so far. step: the length of the newest one, in directions.
    """

    iterations: int = 0
    made: int = 0
    pairs: list[int] = []
    step: float = 0.0
    products: dict[str, dict[str, float]] = {}
    search: LineSearch | None = None


class LbfgsCoordinator:
    """Says from one update to the next what servers find and do. state: of a checkpoint; None: it begins."""

    def __init__(self, settings: LbfgsSettings, state: LbfgsState | None = None) -> None:
        self._settings, self._state = settings, state or LbfgsState()
        self._products = InnerProducts(self._state.products)
        self._commands: list[Combine] = []

    @property
    def asks(self) -> Asked:
        """The inner products that the next update needs."""
        state = self._state
        rows = (GRADIENT, DIRECTION) if state.iterations else (GRADIENT,)
        pairs = [name for place in state.pairs for name in _pair(place)]
        return Asked(rows, (*rows, *((PREVIOUS,) if state.iterations else ()), *pairs))

    def directs(self, found: FoundProducts, loss: float) -> tuple[Combine, ...]:
        """The servers' task in an update of which this was found. loss: of its batch, with the parameters before."""
        self._products.learn(self.asks, found)
        self._commands = []
        if self._state.search is None:
            self._iterate(GRADIENT, loss, found.largest[0], found.rate, found.magnitudes[0])
        else:
            self._look(self._state.search, loss, found)
        return tuple(self._commands)

    def state(self) -> LbfgsState:
        """The coordinator's memory by now."""
        self._state.products = self._products.plain()
        return self._state

    def _do(self, to: str, of: Sequence[str] = (), factors: Sequence[float] = ()) -> None:
        command = Combine(to, tuple(of), tuple(factors))
        self._commands.append(command)
        self._products.combine(command)

    def _iterate(self, gradient: str, loss: float, largest: float, rate: float, magnitudes: float = 0.0) -> None:
        """Go one step from where the parameters are, with their gradient. magnitudes: their sum, of the first one."""
        state = self._state
        if largest <= self._settings.tolerance_grad:
            return
        if state.iterations:
            self._remember(gradient)
        pairs = [_pair(place) for place in state.pairs]
        step, change = pairs[-1] if pairs else ("", "")
        initial = self._products.of(step, change) / self._products.of(change, change) if pairs else 1.0
        factors = two_loops(self._products, gradient, pairs, initial)
        slope = self._products.with_sum(gradient, factors)
        self._do(DIRECTION, list(factors), list(factors.values()))
        self._do(PREVIOUS, [gradient], [1.0])
        state.step = rate if state.iterations else rate * min(1.0, 1.0 / magnitudes)
        state.iterations += 1
        if slope > -STEEP:
            return
        if self._settings.searches:
            state.search = LineSearch(loss, slope, state.step)
            self._do(BASE, [PARAMETERS], [1.0])
        self._do(PARAMETERS, [PARAMETERS, DIRECTION], [1.0, state.step])

    def _remember(self, gradient: str) -> None:
        """Keep the newest step and the change of the gradient over it, unless the loss is not curved upwards there."""
        state, products = self._state, self._products
        curved = state.step * (products.of(gradient, DIRECTION) - products.of(PREVIOUS, DIRECTION))
        if curved <= CURVED:
            return
        place = state.made % self._settings.history_size
        state.pairs = [*(one for one in state.pairs if one != place), place]
        state.made += 1
        step, change = _pair(place)
        self._do(change, [gradient, PREVIOUS], [1.0, -1.0])
        self._do(step, [DIRECTION], [state.step])

    def _look(self, search: LineSearch, loss: float, found: FoundProducts) -> None:
        """Take in a trial of the line search: there is another one, or the next iteration begins."""
        search.size = found.largest[1]
        search.seen = [*search.seen, (loss, self._products.of(GRADIENT, DIRECTION), found.largest[0])]
        start, newest = SearchPoint(0.0, search.loss, search.slope, 0), len(search.seen)
        outcome = searched(start, search.first, search.size, [(one, slope) for one, slope, _ in search.seen])
        if isinstance(outcome, Trial):
            for number in [one for one in search.kept if one not in outcome.keeps]:
                self._do(_trial(number))
            if newest in outcome.keeps:
                self._do(_trial(newest), [GRADIENT], [1.0])
            search.kept = sorted(outcome.keeps - {0})
            self._do(PARAMETERS, [BASE, DIRECTION], [1.0, outcome.step])
            return
        number, self._state.search, self._state.step = outcome.number, None, outcome.step
        if number != newest:
            self._do(PARAMETERS, [BASE, DIRECTION], [1.0, outcome.step])
        gradient = GRADIENT if number == newest else _trial(number) if number else PREVIOUS
        if number:
            self._iterate(gradient, outcome.loss, search.seen[number - 1][2], found.rate)
        for one in search.kept:
            self._do(_trial(one))
        if self._state.search is None:
            self._do(BASE)


def _pair(place: int) -> tuple[str, str]:
    """The names of a step and of the change of the gradient over it."""
    return f"step {place}", f"change {place}"


def _trial(number: int) -> str:
    """The name of the gradient at a trial."""
    return f"trial {number}"
