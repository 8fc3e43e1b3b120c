"""Inner products of vectors that are somewhere else: measured once, and known from then on of sums of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volary.server.protocol.vectors import GRADIENT, Asked, Combine, FoundProducts


class InnerProducts:
    """The inner products of named vectors, as far as they are known; of one that nobody has made there are none.

    rows: by name, those that are known, as `plain` gives them.
    """

    def __init__(self, rows: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._rows = {name: dict(row) for name, row in (rows or {}).items()}

    def of(self, one: str, other: str) -> float:
        """The inner product of two vectors. Raises KeyError if nobody knows it."""
        return self._rows[one][other]

    def with_sum(self, one: str, factors: Mapping[str, float]) -> float:
        """The inner product of a vector with the sum of factors times vectors. Raises KeyError as `of`."""
        row = self._rows[one]
        return sum(factor * row[name] for name, factor in factors.items())

    def learn(self, asked: Asked, found: FoundProducts) -> None:
        """Take in what was measured of an update; its gradient is another one than before."""
        values = iter(found.products)
        self.forget(GRADIENT)
        for row in asked.rows:
            for column in asked.columns:
                self._set(row, column, next(values))

    def combine(self, command: Combine) -> None:
        """A vector has become a sum of others: its products follow from theirs, where all of these are known."""
        factors = dict(zip(command.of, command.factors, strict=True))
        row = {
            other: self.with_sum(other, factors)
            for other in self._rows
            if other != command.to and all(name in self._rows[other] for name in factors)
        }
        if all(name in row for name in factors):
            row[command.to] = sum(factor * row[name] for name, factor in factors.items())
        self.forget(command.to)
        if factors:
            self._rows[command.to] = {}
            for other, value in row.items():
                self._set(command.to, other, value)

    def forget(self, name: str) -> None:
        """Forget all that is known of a vector."""
        for other in self._rows.pop(name, {}):
            if other != name:
                self._rows[other].pop(name, None)

    def plain(self) -> dict[str, dict[str, float]]:
        """All that is known, by name and name."""
        return {name: dict(row) for name, row in self._rows.items()}

    def _set(self, one: str, other: str, value: float) -> None:
        self._rows.setdefault(one, {})[other] = value
        self._rows.setdefault(other, {})[one] = value


def two_loops(
    products: InnerProducts, gradient: str, pairs: Sequence[tuple[str, str]], initial: float
) -> dict[str, float]:
    """The direction of L-BFGS, minus an approximate inverse Hessian times the gradient, as factors of the vectors.

    pairs: (step, change of the gradient), oldest first. initial: the factor of the Hessian that the recursion begins
    with, inverted. Nocedal & Wright, Numerical Optimization, algorithm 7.4; with inner products alone as in Chen et
    al., NIPS 2014 (vector-free L-BFGS).
    """
    factors = {gradient: -1.0} | {name: 0.0 for pair in pairs for name in pair}
    weights = []
    for step, change in reversed(pairs):
        weight = products.with_sum(step, factors) / products.of(change, step)
        factors[change] -= weight
        weights.append(weight)
    factors = {name: factor * initial for name, factor in factors.items()}
    for (step, change), weight in zip(pairs, reversed(weights), strict=True):
        factors[step] += weight - products.with_sum(change, factors) / products.of(change, step)
    return factors
