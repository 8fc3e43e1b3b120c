"""The output of a layer by its name, while the network runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from volary.errors import SettingError
from volary.naming import named_modules
from volary.network.graph.module import GraphModule
from volary.plugins import unknown

if TYPE_CHECKING:
    from collections.abc import Callable


def layer_output(module: nn.Module, layer: str) -> Callable[[Tensor], Any]:
    """A function from inputs (n, ...) to what the layer gives for them.

    Of a network that is a list of layers it is the edge of that name, as the last layer that writes into it leaves it,
    and no more runs than that needs; of any other network, and of a layer without an edge of its name, what the module
    gives, before another one changes it. Raises SettingError for a name that there is not.
    """
    modules = {name: part for name, part in named_modules(module) if name}
    edges = module.edges if isinstance(module, GraphModule) else ()
    if isinstance(module, GraphModule) and layer in edges:
        return lambda inputs: module.run({module.inputs[0]: inputs}, [layer])[layer]
    if layer in modules:
        return _Hooked(module, modules[layer], layer)
    raise SettingError(f"layer: {unknown(layer, list(dict.fromkeys([*edges, *modules])))}")


class _Hooked:
    """The network, run for the sake of one of its parts."""

    def __init__(self, module: nn.Module, part: nn.Module, name: str) -> None:
        self._module, self._name = module, name
        self._found: Any = None
        part.register_forward_hook(self._take)

    def __call__(self, inputs: Tensor) -> Any:
        self._found = None
        self._module(inputs)
        if self._found is None:
            raise SettingError(f"layer: {self._name!r} does not run when the network predicts; accepted: another layer")
        return self._found

    def _take(self, _part: nn.Module, _inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        # cloned: the next layer may write into it
        self._found = first.detach().clone() if isinstance(first, Tensor) else first
