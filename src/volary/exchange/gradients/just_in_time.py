"""Just in time: whoever reads a parameter through its module waits for that parameter alone.

A module keeps its parameters in a dictionary, and every way to read one (`layer.weight`, `parameters()`, ...) leads
through it. That dictionary is replaced by one that waits. Modules that keep parameters in lists as well (torch's
recurrent layers do) read them in their forward, so that waits too. Compiled code has all of its parameters at hand:
whoever enters a compiled network waits for all of them. Any function that some releases of torch's compiler (2.10,
2.11) have compiled reads them past the dictionary: with these, parameters are waited for before it can be called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from volary.naming import is_compiled

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from volary.exchange.gradients.bucket import ParameterGate

Wait = Callable[["ParameterGate"], None]
_READS_PAST = torch.__version__ < "2.12"
_READ_BY_NAME = frozenset({"_parameters", "_buffers", "_modules"})


def compiled_code_reads_past() -> bool:
    """Whether there may be compiled code that reads parameters past the dictionaries of their modules."""
    return _READS_PAST and "torch._dynamo" in sys.modules


class JustInTime:
    """Lets `before_use` be called with the gate in `gates` (by the id of its parameter) before anybody reads it."""

    def __init__(self, module: nn.Module, gates: Mapping[int, ParameterGate], before_use: Wait) -> None:
        self._owners = [part for part in module.modules() if any(id(p) in gates for p in part._parameters.values())]
        self._hooks: list[RemovableHandle] = []
        for owner in self._owners:
            owner._parameters = _Waiting(owner._parameters, gates, before_use)
        for part in module.modules():
            if read := [gates[id(one)] for one in _read_past_names(part) if id(one) in gates]:
                self._hooks.append(part.register_forward_pre_hook(_BeforeForward(read, before_use)))
        traced = _BeforeTracedForward(list(gates.values()), before_use)
        self._hooks.append(module.register_forward_pre_hook(traced))

    def remove(self) -> None:
        """Let the modules have their parameters back as they were."""
        for owner in self._owners:
            owner._parameters = dict(dict.items(owner._parameters))
        for hook in self._hooks:
            hook.remove()


def _read_past_names(part: nn.Module) -> Iterator[Tensor]:
    """Tensors in lists, tuples and dictionaries of a module's own; of compiled code all."""
    if is_compiled(part):
        yield from part.parameters()
    for name, value in vars(part).items():
        if name not in _READ_BY_NAME and isinstance(value, list | tuple | dict):
            values = value.values() if isinstance(value, dict) else value
            yield from (one for one in values if isinstance(one, Tensor))


class _BeforeForward:
    def __init__(self, gates: Sequence[ParameterGate], wait: Wait) -> None:
        self._gates, self._before_use = gates, wait

    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        _wait(self._gates, self._before_use)

    def __reduce__(self) -> Any:
        """A copy of the network waits for nobody."""
        return type(self), ((), _never)


class _BeforeTracedForward(_BeforeForward):
    """For a network that is called in a function that is compiled: compiled code begins after it."""

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if torch.compiler.is_compiling():
            super().__call__(module, inputs)


def _wait(gates: Sequence[ParameterGate], before_use: Wait) -> None:
    for gate in gates:
        if gate.waits:
            before_use(gate)


_wait._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler.disable, which imports the compiler


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
