"""Gradients as they are: summed over a route, or pushed from where backward left them."""

from __future__ import annotations

from dataclasses import dataclass

from volary.exchange.representations._base import Representation


@dataclass(frozen=True)
class Exact(Representation):
    """Gradients travel without loss; every parameter can travel so."""


REPRESENTATION = Exact
EXACT = Exact()
