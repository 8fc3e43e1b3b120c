"""Chooses each layer's codec for pushes to servers, and checks the names of layers in patterns."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import nn

from volary.codec._base import Option
from volary.errors import SettingError
from volary.exchange.choice.layers import layers
from volary.exchange.choice.tables import fitting
from volary.exchange.gradients.factor_hooks import outer_layers
from volary.exchange.representations import representation_of
from volary.exchange.representations.exact import EXACT
from volary.naming import named_parameters, trained_parameters

if TYPE_CHECKING:
    from volary.codec._base import Codec
    from volary.exchange.representations._base import Representation


def pushed(codec: Codec, module: nn.Module, samples: int, servers: int) -> dict[str, Representation]:
    """Choose, for all steps, the representations of those parameters that do not travel to servers as they are.

    Workers and servers find the same, each for itself: it goes by shapes, by the `samples` whose gradients are pushed
    at once (0: something else is pushed, which is no sum of products), and by the bytes that a worker sends to all
    servers.
    """
    names = {id(parameter): name for name, parameter in named_parameters(module)}
    connected = [names[id(weight)] for layer, weight in outer_layers(module) if type(layer) is nn.Linear]
    products = {name: float(samples) for name in connected if samples and codec.of(name).chooses}
    found: dict[str, Representation] = {}
    for layer in layers(module, products):
        one = codec.of(layer.names[0])
        options = []
        for leaf in fitting(one, layer):
            representation = representation_of(leaf)
            sent_bytes = representation.pushed_bytes(layer, servers)
            options.append(Option(leaf, representation.name, sent_bytes, sent_bytes))
        best, _ = one.pick(layer, options)
        found |= dict.fromkeys(layer.names, representation_of(best.codec))
    return {name: one for name, one in found.items() if one != EXACT}


def refuse_strangers(codec: Codec, module: nn.Module) -> None:
    """Raise SettingError for a pattern that matches no trained parameter of `module`."""
    known = list(trained_parameters(module))
    for pattern in codec.patterns():
        if not any(fnmatchcase(name, pattern) for name in known):
            examples = ", ".join(known[:4]) + ", ..." * (len(known) > 4)
            raise SettingError(
                f"strategy.codec: no trained parameter matches {pattern!r}; accepted: patterns of {examples}"
            )
