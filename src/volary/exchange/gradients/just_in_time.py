"""Just in time: whoever reads a parameter through its module waits for that parameter alone.

A module keeps its parameters in a dictionary, and every way to read one (`layer.weight`, `parameters()`, ...) leads
through it. That dictionary is replaced by one that waits. Modules that keep parameters in lists as well (torch's
recurrent layers do) read them in their forward, so that waits too.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from volary.exchange.gradients.bucket import ParameterGate

Wait = Callable[["ParameterGate"], None]
_READ_BY_NAME = frozenset({"_parameters", "_buffers", "_modules"})


class JustInTime:
    """Lets `before_use` be called with the gate in `gates` (by the id of its parameter) before anybody reads it."""

    def __init__(self, module: nn.Module, gates: Mapping[int, ParameterGate], before_use: Wait) -> None:
        self._owners = [part for part in module.modules() if any(id(p) in gates for p in part._parameters.values())]
        self._hooks: list[RemovableHandle] = []
        for owner in self._owners:
            owner._parameters = _Waiting(owner._parameters, gates, before_use)
        for part in module.modules():
            if kept := [gates[id(value)] for value in _kept(part) if id(value) in gates]:
                self._hooks.append(part.register_forward_pre_hook(_BeforeForward(kept, before_use)))

    def remove(self) -> None:
        """Let the modules have their parameters back as they were."""
        for owner in self._owners:
            owner._parameters = dict(dict.items(owner._parameters))
        for hook in self._hooks:
            hook.remove()


def _kept(part: nn.Module) -> Iterator[Tensor]:
    """Tensors in lists, tuples and dictionaries of a module's own."""
    for name, value in vars(part).items():
        if name not in _READ_BY_NAME and isinstance(value, list | tuple | dict):
            values = value.values() if isinstance(value, dict) else value
            yield from (one for one in values if isinstance(one, Tensor))


class _BeforeForward:
    def __init__(self, gates: Sequence[ParameterGate], wait: Wait) -> None:
        self._gates, self._before_use = gates, wait

    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        for gate in self._gates:
            if gate.waits:
                self._before_use(gate)

    def __reduce__(self) -> Any:
        """A copy of the network waits for nobody."""
        return _BeforeForward, ((), _never)


def _never(_: ParameterGate) -> None:
    raise AssertionError("a copy of the network has no gates")


class _Waiting(dict[str, "nn.Parameter | None"]):
    def __init__(
        self, parameters: dict[str, nn.Parameter | None], gates: Mapping[int, ParameterGate], wait: Wait
    ) -> None:
        super().__init__(parameters)
        self._gates, self._before_use = gates, wait

    def __getitem__(self, name: str) -> nn.Parameter | None:
        return self._waited_for(super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:
        return self._waited_for(super().get(name, default))

    def items(self) -> ItemsView[str, nn.Parameter | None]:  # type: ignore[override]
        self.wait()
        return super().items()

    def values(self) -> ValuesView[nn.Parameter | None]:  # type: ignore[override]
        self.wait()
        return super().values()

    def __reduce__(self) -> Any:
        """A copy of the network is not what is trained: it gets a plain dictionary."""
        return dict, (list(self.items()),)

    def wait(self) -> None:
        """Wait for all parameters."""
        for parameter in super().values():
            self._waited_for(parameter)

    def _waited_for(self, parameter: nn.Parameter | None) -> nn.Parameter | None:
        gate = self._gates.get(id(parameter))
        if gate is not None and gate.waits:
            self._before_use(gate)
        return parameter
