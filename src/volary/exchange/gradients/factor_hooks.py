"""Layers whose weight's gradient is a sum of outer products hand over the factors, and form no gradient.

Fully connected layers, 1 x 1 convolutions (each place of the image is a row), and embeddings (an error vector and the
number of the row that was looked up).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional

from volary.errors import SettingError
from volary.exchange.gradients.factor_payload import INDEX
from volary.exchange.gradients.plain_layers import in_type_of, lookers, plain_layers, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.function import FunctionCtx

    from volary.exchange.gradients.bucket import Bucket
    from volary.exchange.gradients.buckets import Gradients


class _Kind(Protocol):
    """A kind of layer: what it computes, and what its gradients are made of."""

    def output(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor: ...

    def back(self, errors: Tensor, weight: Tensor) -> Tensor: ...

    def factors(self, errors: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]: ...


class _Connected:
    def output(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(inputs, weight, bias)

    def back(self, errors: Tensor, weight: Tensor) -> Tensor:
        return errors @ weight

    def factors(self, errors: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return errors.reshape(-1, errors.shape[-1]), inputs.reshape(-1, inputs.shape[-1])


class _Pointwise:
    def output(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.conv2d(inputs, weight, bias)

    def back(self, errors: Tensor, weight: Tensor) -> Tensor:
        return functional.conv_transpose2d(errors, weight)

    def factors(self, errors: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return _Connected().factors(errors.movedim(-3, -1), inputs.movedim(-3, -1))


class _LookedUp:
    def __init__(self, padding: int | None) -> None:
        self._padding = padding

    def output(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.embedding(inputs, weight)

    def back(self, errors: Tensor, weight: Tensor) -> Tensor:
        raise AssertionError("indices have no gradient")

    def factors(self, errors: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        errors, inputs = errors.reshape(-1, errors.shape[-1]), inputs.reshape(-1)
        if self._padding is None:
            return errors, inputs
        kept = inputs != self._padding
        return errors[kept], inputs[kept]


class _Use:
    """A forward of the layer, for as long as autograd can come back to it. task: the newest pass that did."""

    __slots__ = ("__weakref__", "task")

    def __init__(self) -> None:
        self.task = -1


class FactorHook:
    """Stands in for the forward of `layer`, whose parameters are those of `bucket`.

    Factors leave when a backward pass has come to all uses there are: before it computes what comes behind the layer.
    If it does not come to all of them, a gradient of a mark, which only this layer uses, tells when it is through with
    the last. A pass that ends at gradients of other tensors alone does not come to the mark, and counts for nothing.
    """

    def __init__(self, layer: nn.Module, kind: _Kind, bucket: Bucket, buckets: Gradients) -> None:
        self._layer, self.kind, self._bucket, self._buckets = layer, kind, bucket, buckets
        self._names = " and ".join(slot.name for slot in bucket.slots)
        self._own = {id(slot.parameter) for slot in bucket.slots}
        self._uses = WeakSet[_Use]()
        self._passed_in = -1  # the newest pass in which factors left before it came to the mark
        self._mark = torch.zeros((), requires_grad=True)
        self._mark.register_post_accumulate_grad_hook(self._passed)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Compute what the layer's own forward computes."""
        if not torch.is_grad_enabled() or not self._plain(inputs):
            return self._as_usual(inputs)
        weight, bias = (self._layer._parameters.get(name) for name in ("weight", "bias"))
        assert weight is not None
        values = weight.detach(), None if bias is None else bias.detach()
        output: Tensor = _Outer.apply(inputs, *values, self._mark, self)  # type: ignore[no-untyped-call]
        return output

    def __reduce__(self) -> Any:
        """A copy of the network computes as usual: it is not what is trained."""
        return partial, (type(self._layer).forward, self._layer)

    def use(self) -> _Use:
        """The layer is used once more."""
        use = _Use()
        self._uses.add(use)
        return use

    def take(self, use: _Use, errors: Tensor, inputs: Tensor) -> None:
        """Take a use's errors (..., out_features) and inputs (..., in_features) from backward. Raises SettingError."""
        if torch.is_grad_enabled() or any(watched(slot.parameter) for slot in self._bucket.slots):
            raise SettingError(
                f"{self._names}: a hook watches its gradient, or backward keeps its own graph (create_graph=True), and "
                "factors form no gradient in backward; accepted: another codec than factors for it"
            )
        assert self._bucket.payload is not None
        self._bucket.payload.add(*self.kind.factors(errors, inputs), self._buckets.weight())
        use.task = task = torch._C._current_graph_task_id()
        mark = get_gradient_edge(self._mark).node
        if all(one.task == task for one in self._uses) and torch._C._will_engine_execute_node(mark):
            self._passed_in = task
            self._buckets.passed(self._bucket)

    def _plain(self, inputs: Tensor) -> bool:
        """Whether the layer computes what it says, and all that is trained of it is in the bucket."""
        weight = self._layer._parameters["weight"]
        assert weight is not None
        if not in_type_of(weight, inputs):
            return False
        own = [one for one in self._layer._parameters.values() if one is not None and one.requires_grad]
        return weight.requires_grad and all(id(one) in self._own for one in own)

    def _as_usual(self, inputs: Tensor) -> Tensor:
        forward: Callable[[nn.Module, Tensor], Tensor] = type(self._layer).forward
        return forward(self._layer, inputs)

    def _passed(self, mark: Tensor) -> None:
        mark.grad = None
        if self._passed_in != torch._C._current_graph_task_id():
            self._buckets.passed(self._bucket)
        for slot in self._bucket.slots:  # autograd would tell them, had it a gradient
            for look in lookers(slot.parameter):
                look(slot.parameter)


class _Outer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor | None, mark: Tensor, outer: FactorHook
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.outer, ctx.use = outer, outer.use()  # type: ignore[attr-defined]
        return outer.kind.output(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, errors: Tensor) -> tuple[Tensor | None, None, None, Tensor, None]:
        inputs, weight = ctx.saved_tensors
        ctx.outer.take(ctx.use, errors, inputs)  # first: they have the longest way to go
        for_inputs = ctx.outer.kind.back(errors, weight) if ctx.needs_input_grad[0] else None
        return for_inputs, None, None, torch.zeros(()), None


def send_factors(module: nn.Module, buckets: Gradients) -> list[nn.Module]:
    """Let layers of `module` whose buckets have a payload hand over factors; returns them.

    Raises SettingError for a weight that is not alone that of a layer which can.
    """
    layers = {id(weight): layer for layer, weight in outer_layers(module)}
    changed = []
    for bucket in buckets.all:
        if bucket.payload is None:
            continue
        (weight,) = (slot for slot in bucket.slots if slot.parameter.dim() > 1)
        layer = layers.get(id(weight.parameter))
        if layer is None:
            raise SettingError(
                f"{weight.name} cannot travel as factors; accepted: the weight of one Linear, Embedding (neither "
                "sparse nor with max_norm or scale_grad_by_freq) or 1 x 1 Conv2d (stride 1, groups 1, padding 0) alone"
            )
        lookup = isinstance(layer, nn.Embedding)
        rows, columns = weight.parameter.shape[:2]
        bucket.payload.hold(*((columns, 1) if lookup else (rows, columns)), lookup=lookup)
        vars(layer)["forward"] = FactorHook(layer, _kind(layer), bucket, buckets)
        changed.append(layer)
    return changed


def outer_layers(module: nn.Module) -> list[tuple[nn.Module, nn.Parameter]]:
    """The layers of `module` that can hand over factors, and their weights: trained, lying row by row."""
    return [
        (layer, weight)
        for layer, weight in plain_layers(module)
        if _is_outer(layer)
        and weight.requires_grad
        and weight.dtype in INDEX
        and weight.stride()[:2] == (weight.shape[1], 1)
    ]


def _is_outer(layer: nn.Module) -> bool:
    if type(layer) is nn.Embedding:
        return not layer.sparse and layer.max_norm is None and not layer.scale_grad_by_freq
    if type(layer) is nn.Conv2d:
        shape = layer.kernel_size, layer.stride, layer.groups, layer.padding
        return shape == ((1, 1), (1, 1), 1, (0, 0))
    return type(layer) is nn.Linear


def _kind(layer: nn.Module) -> _Kind:
    if isinstance(layer, nn.Embedding):
        return _LookedUp(layer.padding_idx)
    return _Pointwise() if isinstance(layer, nn.Conv2d) else _Connected()
