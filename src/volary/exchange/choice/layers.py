"""The units of a choice: a parameter, or the parameters of a layer whose gradients are products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from volary.codec._base import Layer
from volary.naming import named_modules, named_parameters

if TYPE_CHECKING:
    from torch.nn import Parameter

LEAST_VALUES = 1024  # a codec for less gains nothing


def encodable(parameter: Parameter) -> bool:
    """Whether codecs take it: a matrix of 32-bit values, dense, and not too small."""
    dense = parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()
    return parameter.dtype == torch.float32 and parameter.dim() > 1 and parameter.numel() >= LEAST_VALUES and dense


def layers(module: nn.Module, products: Mapping[str, float | None]) -> list[Layer]:
    """The trained parameters of `module`, in its order. products: of weights whose gradients are sums of products."""
    found: dict[str, Layer] = {}
    taken: set[str] = set()
    sizes = {name: one.numel() for name, one in named_parameters(module, remove_duplicate=False)}
    owners = {f"{name}.weight".lstrip("."): (name, part) for name, part in named_modules(module)}
    for name, parameter in named_parameters(module):
        if not parameter.requires_grad or name in taken:
            continue
        names = [name]
        if name in products:
            prefix, part = owners[name]
            bias = f"{prefix}.bias".lstrip(".")
            if isinstance(getattr(part, "bias", None), nn.Parameter) and part.bias.requires_grad:
                names.append(bias)
        taken.update(names)
        values = sum(sizes[one] for one in names)
        found[name] = _layer(names, parameter, values, products.get(name), owners.get(name, ("", None))[1])
    return list(found.values())


def _layer(
    names: Sequence[str], parameter: Parameter, values: int, products: float | None, part: nn.Module | None
) -> Layer:
    rows = parameter.shape[0] if parameter.dim() else 1
    columns = parameter.numel() // max(1, rows)
    return Layer(
        names=tuple(names),
        values=values,
        rows=rows,
        columns=columns,
        encodable=encodable(parameter),
        products=products,
        factor_values=1 + columns if isinstance(part, nn.Embedding) else rows + columns,
    )
