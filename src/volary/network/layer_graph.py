"""The graph of a network, layer by layer: which feeds which, shapes, operations, and the time of a forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from volary.naming import named_modules, named_parameters
from volary.network.dry_run import unchanged

INPUT = "input"  # what feeds the first layers
_PRODUCTS = frozenset({"matmul", "__matmul__", "__rmatmul__", "mm", "bmm"})


def layer_graph(module: nn.Module, inputs: Tensor, casting: AbstractContextManager[Any]) -> dict[str, Any]:
    """The layers of `module` in the order in which they run, as plain values; they are found by running it once.

    layers: of each its `name`, `kind` (class), `inputs` (names of the layers whose output it uses, or INPUT), `shape`
    (of its output, without the samples), `operations` (floating-point, of one sample's forward: two for each product
    in matrix products and convolutions) and `forward_s` (for all `inputs`). parameters: how many values each has, by
    name. samples: how many `inputs` are.

    A layer is a module without parts of its own, or one that has parameters itself. The module is as before. Raises
    what its code raises.
    """
    layers = {name: part for name, part in named_modules(module) if _is_layer(part)}
    calls = _Calls()
    watch = _Watch(calls, layers, inputs.device)
    calls.made_of(inputs, frozenset({INPUT}))
    with torch.no_grad(), unchanged(module), casting, _hooked(layers, watch.before, watch.after), calls:
        module(inputs)
    found = [
        {
            "name": name,
            "kind": type(layers[name]).__name__,
            "inputs": sorted(watch.inputs[name]),
            "shape": shape,
            "operations": watch.operations[name] // len(inputs),
            "forward_s": round(watch.spent_s[name], 9),
        }
        for name, shape in watch.shapes.items()
    ]
    parameters = {name: parameter.numel() for name, parameter in named_parameters(module)}
    return {"layers": found, "parameters": parameters, "samples": len(inputs)}


def _is_layer(part: nn.Module) -> bool:
    return not any(True for _ in part.children()) or any(True for _ in part.parameters(recurse=False))


@contextmanager
def _hooked(
    layers: Mapping[str, nn.Module], before: Callable[[], None], after: Callable[[str, Any, Any], None]
) -> Iterator[None]:
    """Call `before` and `after` around each layer; after: told its name, what it was given and what it gives.

    A layer within another one is a part of that.
    """
    inside: list[str] = []

    def entering(name: str) -> Callable[..., None]:
        def entered(*_: Any) -> None:
            inside.append(name)
            if len(inside) == 1:
                before()

        return entered

    def leaving(name: str) -> Callable[..., None]:
        def left(_: nn.Module, given: Any, named: Any, output: Any) -> None:
            if len(inside) == 1:
                after(name, (given, named), output)
            inside.pop()

        return left

    handles = [part.register_forward_pre_hook(entering(name)) for name, part in layers.items()]
    handles += [part.register_forward_hook(leaving(name), with_kwargs=True) for name, part in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Calls(TorchFunctionMode):
    """Sees all calls of torch's functions: their operations, and of which layers' outputs each tensor was made."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self._known: dict[int, tuple[Tensor, frozenset[str]]] = {}  # the tensor is kept: its id must not be another's

    def layers_of(self, values: Any) -> frozenset[str]:
        """The layers that all tensors in `values` were made of."""
        known = [self._known[id(tensor)][1] for tensor in _tensors(values) if id(tensor) in self._known]
        return frozenset().union(*known)

    def made_of(self, values: Any, layers: frozenset[str]) -> None:
        """All tensors in `values` were made of these layers' outputs."""
        self._known.update({id(tensor): (tensor, layers) for tensor in _tensors(values)})

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the function: what it gives was made of what it was given."""
        result = func(*args, **(kwargs or {}))
        if layers := self.layers_of((args, kwargs)):
            self.made_of(result, layers)
        if isinstance(result, Tensor):
            self.operations += _operations(getattr(func, "__name__", ""), args, result)
        return result


def _operations(function: str, args: Sequence[Any], result: Tensor) -> int:
    """The operations of a call of torch's `function`: two for each product, none if it is no sum of products."""
    if len(args) < 2 or not (isinstance(args[0], Tensor) and isinstance(args[1], Tensor)):
        return 0
    left, right = args[0], args[1]
    if function == "linear" or function in _PRODUCTS:
        return 2 * result.numel() * left.shape[-1]
    if function.startswith("conv_transpose"):
        return 2 * left.numel() * right[0].numel()
    if function.startswith("conv"):
        return 2 * result.numel() * right[0].numel()
    if function == "scaled_dot_product_attention":
        return 2 * left.numel() * right.shape[-2] + 2 * result.numel() * right.shape[-2]
    return 0


class _Watch:
    """Records by layer: what feeds it, its output's shape, its operations and its seconds, summed if it runs again."""

    def __init__(self, calls: _Calls, layers: Mapping[str, nn.Module], device: torch.device) -> None:
        self.inputs: dict[str, frozenset[str]] = {}
        self.shapes: dict[str, list[int]] = {}
        self.operations: dict[str, int] = {}
        self.spent_s: dict[str, float] = {}
        self._calls, self._layers, self._device = calls, layers, device
        self._began_s, self._began_at = 0.0, 0

    def before(self) -> None:
        self._began_s, self._began_at = self._now(), self._calls.operations

    def after(self, name: str, given: Any, output: Any) -> None:
        spent_s = self._now() - self._began_s
        counted = self._calls.operations - self._began_at or _within(self._layers[name], given)
        self.spent_s[name] = self.spent_s.get(name, 0.0) + spent_s
        self.operations[name] = self.operations.get(name, 0) + counted
        self.inputs[name] = self.inputs.get(name, frozenset()) | self._calls.layers_of(given)
        self.shapes[name] = next((list(tensor.shape[1:]) for tensor in _tensors(output)), [])
        self._calls.made_of(output, frozenset({name}))

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def _within(layer: nn.Module, given: Any) -> int:
    """Operations of a layer that torch computes in a single call: of each of its matrices, at every input position."""
    if not isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
        return 0
    first = next(_tensors(given))
    return sum(2 * one.numel() for one in layer.parameters() if one.dim() > 1) * (first.numel() // first.shape[-1])


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in tuples, lists and dictionaries."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _tensors(value)
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
