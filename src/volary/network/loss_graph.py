"""Finds in autograd's graph of a scalar loss: whether it is a sum over samples, or a mean over a part of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_MEAN, _SUM = 1, 2  # torch's numbers of reductions
_TERMS = frozenset({"AddBackward0", "SubBackward0", "NegBackward0"})
_FACTORS = frozenset({"MulBackward0", "MulBackward1", "DivBackward0", "DivBackward1"})
_SAME = frozenset({"ToCopyBackward0", "CloneBackward0", "AliasBackward0", "ViewBackward0"}) | {
    f"{name}Backward{number}" for name in ("Squeeze", "Unsqueeze") for number in range(2)
}
_JOINED = frozenset({"CatBackward0", "StackBackward0"})
_SUMS = ("SumBackward", "NansumBackward", "DotBackward")
_NEAR = 4  # operations between a mean and the choice of what it is over


def sum_in(loss: Tensor, samples: int) -> str:
    """Say what shows that a scalar loss is a sum over a batch of `samples` (0: unknown), no mean; else return "".

    It looks at the terms that the loss is the sum of; a term with a factor may be a mean.
    """
    for node, _ in _terms(loss, _TERMS, samples):
        if getattr(node, "_saved_reduction", None) == _SUM:
            return f'{node.name().removesuffix("Backward0")} with reduction="sum"'
        if node.name() == "SumBackward0" and samples > 1 and _first_size(node) == samples:
            return "sum()"
    return ""


def mean_of_some_in(loss: Tensor, samples: int) -> str:
    """Say what shows that a scalar loss is a mean over a part of a batch of `samples` (0: unknown); else return "".

    It finds ignored targets, weights of classes, a mask. It looks at the loss's terms, with and without a factor.
    """
    terms = list(_terms(loss, _TERMS | _FACTORS | _SAME, samples))
    of_classes = [node for node, _ in terms if node.name().startswith("NllLoss")]
    unit = next((unit for node in of_classes if (unit := _unit(node))), 1.0)
    by_sample = samples > 1 and len(of_classes) % samples == 0  # each sample may have a loss of its own
    for node, divided in terms:
        if node.name().startswith("NllLoss"):
            found = _of_classes(node, 0 if by_sample else samples)
        elif node.name() == "DivBackward0":
            found = _of_quotient(node, samples, divided, unit)
        else:
            found = _of_chosen(node)
        if found:
            return found
    return ""


def _terms(loss: Tensor, through: frozenset[str], samples: int) -> Iterator[tuple[Any, float]]:
    """Each with what it is divided by."""
    nodes: list[tuple[Any, float]] = [(loss.grad_fn, 1.0)]
    while nodes:
        node, divided = nodes.pop()
        if node is None:
            continue
        yield node, divided
        if node.name() in through or _adds_losses(node, samples):
            divided *= _divisor(node) or 1.0
            nodes += [(before, divided) for before, _ in node.next_functions]


def _adds_losses(node: Any, samples: int) -> bool:
    """Whether it is `torch.stack(losses)`, or the sum or mean of that; not where each sample may have one."""
    if node.name() in ("SumBackward0", "MeanBackward0"):
        node = node.next_functions[0][0]
    return _name(node) == "StackBackward0" and (samples < 2 or len(node.next_functions) % samples > 0)


def _divisor(node: Any) -> float | None:
    """The number that `node` divides by; None if it is none, or not one."""
    divisor = node._saved_other if node.name() == "DivBackward0" else None
    return None if divisor is None or divisor.numel() != 1 else float(divisor)


def _unit(node: Any) -> float | None:
    """The weight of each class of a cross-entropy; None where they differ."""
    weight = node._saved_weight
    if weight is None:
        return 1.0
    return float(weight[0]) if bool((weight == weight[0]).all()) else None


def _of_classes(node: Any, samples: int) -> str:
    targets, unit = node._saved_target.numel(), _unit(node)
    if node._saved_reduction != _MEAN:
        return ""
    if not unit:
        return "NllLoss with weights of classes"
    counted = round(float(node._saved_total_weight) / unit)
    if counted != targets:
        return f"NllLoss ignores {targets - counted} of {targets} targets"
    return f"NllLoss of {targets} targets, of {samples} samples" if samples and targets % samples else ""


def _of_quotient(node: Any, samples: int, divided: float, unit: float) -> str:
    """A sum, divided by what is no multiple of the samples. divided: by what else. unit: the weight of each class."""
    numerator, divisor = node.next_functions[0][0], _divisor(node)
    while _name(numerator) in _SAME | {"NegBackward0"}:
        numerator = numerator.next_functions[0][0]
    if numerator is None or divisor is None or not samples or _of_parameter(numerator):
        return ""
    summed = numerator.name().startswith(_SUMS) or getattr(numerator, "_saved_reduction", None) == _SUM
    whole = divisor * divided if divisor < samples else divisor  # a factor, as the half of a square, and the samples
    multiple = any(
        isclose(each, samples * max(1, round(each / samples)), rel_tol=1e-6) for each in (whole, whole / unit)
    )
    return f"a sum divided by {divisor:g}, of {samples} samples" if summed and not multiple else ""


def _of_chosen(node: Any) -> str:
    """A mean over what a mask chooses."""
    if not (node.name().startswith("MeanBackward") or getattr(node, "_saved_reduction", None) == _MEAN):
        return ""
    for _ in range(_NEAR):
        node = node.next_functions[0][0] if node.next_functions else None
        if node is None or node.name() in _JOINED or _of_parameter(node):
            return ""
        masks = [getattr(node, "_saved_mask", None)] if node.name() == "MaskedSelectBackward0" else []
        masks += getattr(node, "_saved_indices", ()) if node.name() == "IndexBackward0" else ()
        for mask in masks:
            if mask is not None and mask.dtype == torch.bool and not mask.all():
                return f"a mask leaves out {int((~mask).sum())} of {mask.numel()} values"
    return ""


def _of_parameter(node: Any) -> bool:
    """Whether it is made of a parameter value by value, as a penalty is: there is no batch in it."""
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    while True:
        before = [one for one, _ in node.next_functions if one is not None]
        if len(before) != 1:
            return False
        (node,) = before
        if node.name() == "torch::autograd::AccumulateGrad":
            return sizes is not None and tuple(node.variable.shape) == tuple(sizes)


def _name(node: Any) -> str:
    return "" if node is None else node.name()


def _first_size(node: Any) -> int:
    sizes = getattr(node, "_saved_self_sym_sizes", ())
    return int(sizes[0]) if sizes else 0
