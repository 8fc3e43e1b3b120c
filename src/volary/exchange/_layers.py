"""What a way is chosen for: a parameter, or the parameters of a layer whose gradients are products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch.nn import Parameter

LEAST_VALUES = 1024  # a codec for less gains nothing
VALUE_BYTES = 4


@dataclass(frozen=True)
class Layer:
    """Parameters that travel in one way.

    values: of all of them. rows, columns: of the one that is a matrix. encodable: a codec may have it. products: how
    many products of two vectors the gradient is the sum of, on average over the steps that were watched, on one rank;
    None: it is no such sum. factor_values: of the two vectors of one product.
    """

    names: tuple[str, ...]
    values: int
    rows: int
    columns: int
    encodable: bool
    products: float | None = None
    factor_values: int = 0

    def products_bytes(self, products: float) -> float:
        """Bytes of the factors of so many products."""
        return VALUE_BYTES * self.factor_values * products


def encodable(parameter: Parameter) -> bool:
    """Whether codecs take it: a matrix of 32-bit values, dense, and not too small."""
    dense = parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()
    return parameter.dtype == torch.float32 and parameter.dim() > 1 and parameter.numel() >= LEAST_VALUES and dense


def layers(module: nn.Module, products: Mapping[str, float]) -> list[Layer]:
    """The trained parameters of `module`, in its order. products: of weights whose gradients are sums of products."""
    found: dict[str, Layer] = {}
    taken: set[str] = set()
    owners = {f"{name}.weight".lstrip("."): (name, part) for name, part in module.named_modules()}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad or name in taken:
            continue
        names = [name]
        if name in products:
            prefix, part = owners[name]
            bias = f"{prefix}.bias".lstrip(".")
            if isinstance(getattr(part, "bias", None), nn.Parameter) and part.bias.requires_grad:
                names.append(bias)
        taken.update(names)
        found[name] = _layer(names, parameter, module, products.get(name), owners.get(name, ("", None))[1])
    return list(found.values())


def _layer(
    names: Sequence[str], parameter: Parameter, module: nn.Module, products: float | None, part: nn.Module | None
) -> Layer:
    rows = parameter.shape[0] if parameter.dim() else 1
    columns = parameter.numel() // max(1, rows)
    return Layer(
        names=tuple(names),
        values=sum(module.get_parameter(name).numel() for name in names),
        rows=rows,
        columns=columns,
        encodable=encodable(parameter),
        products=products,
        factor_values=1 + columns if isinstance(part, nn.Embedding) else rows + columns,
    )
