"""What autograd shows of a scalar loss: whether it is a sum over samples, or a mean over a part of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_MEAN, _SUM = 1, 2  # torch's numbers of reductions
_TERMS = frozenset({"AddBackward0", "SubBackward0", "NegBackward0"})
_FACTORS = frozenset({"MulBackward0", "MulBackward1", "DivBackward0", "DivBackward1"})
_NEAR = 4  # operations between a mean and the choice of what it is over


def sum_in(loss: Tensor, samples: int) -> str:
    """What shows that a scalar loss is a sum over a batch of `samples` (0: unknown), no mean; empty if nothing does.

    Looked at are the terms that it is the sum of; a term with a factor may be a mean.
    """
    for node in _terms(loss, _TERMS):
        if getattr(node, "_saved_reduction", None) == _SUM:
            return f'{node.name().removesuffix("Backward0")} with reduction="sum"'
        if node.name() == "SumBackward0" and samples > 1 and _first_size(node) == samples:
            return "sum()"
    return ""


def mean_of_some_in(loss: Tensor, samples: int) -> str:
    """What shows that a scalar loss is a mean over a part of a batch of `samples` (0: unknown), in words; or nothing.

    Targets that are ignored, weights of classes, a mask. Looked at are its terms, with and without a factor.
    """
    for node in _terms(loss, _TERMS | _FACTORS):
        if node.name().startswith("NllLoss"):
            found = _of_classes(node, samples)
        elif node.name() == "DivBackward0":
            found = _of_quotient(node, samples)
        else:
            found = _of_chosen(node)
        if found:
            return found
    return ""


def _terms(loss: Tensor, through: frozenset[str]) -> Iterator[Any]:
    nodes = [loss.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None:
            continue
        yield node
        if node.name() in through:
            nodes += [before for before, _ in node.next_functions]


def _of_classes(node: Any, samples: int) -> str:
    targets = node._saved_target.numel()
    if node._saved_reduction != _MEAN:
        return ""
    if node._saved_weight is not None:
        return "NllLoss with weights of classes"
    counted = int(node._saved_total_weight)
    if counted != targets:
        return f"NllLoss ignores {targets - counted} of {targets} targets"
    return f"NllLoss of {targets} targets, of {samples} samples" if samples and targets % samples else ""


def _of_quotient(node: Any, samples: int) -> str:
    """A sum, divided by what is no multiple of the samples."""
    numerator, divisor = node.next_functions[0][0], node._saved_other
    if numerator is None or divisor is None or divisor.numel() != 1 or not samples:
        return ""
    summed = numerator.name().startswith("SumBackward") or getattr(numerator, "_saved_reduction", None) == _SUM
    value = float(divisor)
    return f"a sum divided by {value:g}, of {samples} samples" if summed and value % samples else ""


def _of_chosen(node: Any) -> str:
    """A mean over what a mask chooses."""
    if not (node.name().startswith("MeanBackward") or getattr(node, "_saved_reduction", None) == _MEAN):
        return ""
    for _ in range(_NEAR):
        node = node.next_functions[0][0] if node.next_functions else None
        if node is None:
            return ""
        masks = [getattr(node, "_saved_mask", None)] if node.name() == "MaskedSelectBackward0" else []
        masks += getattr(node, "_saved_indices", ()) if node.name() == "IndexBackward0" else ()
        for mask in masks:
            if mask is not None and mask.dtype == torch.bool and not mask.all():
                return f"a mask leaves out {int((~mask).sum())} of {mask.numel()} values"
    return ""


def _first_size(node: Any) -> int:
    sizes = getattr(node, "_saved_self_sym_sizes", ())
    return int(sizes[0]) if sizes else 0
