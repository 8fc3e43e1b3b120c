"""Sees when the parameters of a network are used: read in a forward, and needed again by a step of backward.

In a forward a parameter is read through its module, and used until the module whose forward read it returns: or, if it
returns the parameter itself, until that one's caller does. Code that has kept a parameter elsewhere reads it unseen,
when it may not be here: that is refused. Autograd keeps what its steps will need again; for what lies
in a unit's memory it asks here, and has it until its next step asks. What is read within backward, where activations
are computed anew, is used until all gradients of its unit are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from volary.errors import SettingError
from volary.exchange.gradients.accumulation_hooks import before_bucket
from volary.exchange.gradients.just_in_time import JustInTime
from volary.exchange.gradients.plain_layers import only_looks

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from volary.exchange.gathering.gathered import GatheredParameters, Phase
    from volary.exchange.gathering.units import Unit
    from volary.exchange.gradients.bucket import ParameterGate

_OUTSIDE_BACKWARD = -1


class ParameterUses:
    """Lets the parameters of `module` be there while they are used. Used from the training thread.

    wait: returns when what is behind a gate is there. others: gates of parameters that are always there, by their ids,
    before which somebody may have to wait.
    """

    def __init__(
        self,
        module: nn.Module,
        gathered: GatheredParameters,
        wait: Callable[[ParameterGate], None],
        others: dict[int, ParameterGate],
    ) -> None:
        self._gathered, self._wait = gathered, wait
        self._at = {unit.values.untyped_storage().data_ptr(): unit for unit in gathered.units}
        self._frames: list[set[Unit]] = []  # what each forward that is under way has read
        self._step: Any = None  # of backward, the newest that asked
        self._needed: set[Unit] = set()  # by it
        self._missing: dict[Unit, set[int]] = {}  # read within backward, until these parameters have their gradients
        self._saving: saved_tensors_hooks | None = None
        self._looking: _Looking | None = _Looking(self._look)  # at the first forward
        self._moving = 0  # what moves parameters is under way, and reads them itself
        self._hooks: list[RemovableHandle] = []
        for part in module.modules():
            self._hooks.append(part.register_forward_pre_hook(_Hook(self._enter)))
            self._hooks.append(part.register_forward_hook(_Hook(self._leave), always_call=True))
        # after the hooks: what a layer reads before its forward, it reads within it
        self._just_in_time = JustInTime(module, {**others, **gathered.gates}, self._read)
        for unit in gathered.units:
            for _, parameter in unit.named:
                self._hooks.append(before_bucket(parameter, only_looks(partial(self._has_gradient, unit))))

    def forget(self) -> None:
        """A step is over: nothing is used any more."""
        assert not self._frames, "a forward is under way"
        self._step = None
        self._needed.clear()
        self._missing.clear()

    def remove(self) -> None:
        """Let the modules be as they were."""
        self._just_in_time.remove()
        for hook in self._hooks:
            hook.remove()

    def _read(self, gate: ParameterGate) -> None:
        """Somebody reads a parameter behind a closed gate: it is open until that use is over."""
        unit = self._gathered.of(gate)
        if unit is None:
            self._wait(gate)
            return
        self._use(unit)
        if _in_backward() and unit not in self._missing:
            self._missing[unit] = {id(parameter) for _, parameter in unit.named}
            self._use(unit)
        unit.gate.waits = 0
        if self._frames:  # what is read outside any forward is used until the step is over
            self._frames[-1].add(unit)

    def _use(self, unit: Unit) -> None:
        self._moving += 1
        try:
            if unit.state != "here":
                self._wait(unit.gate)
            phase: Phase = "backward" if _in_backward() else "forward" if torch.is_grad_enabled() else "evaluate"
            self._gathered.use(unit, phase)
        finally:
            self._moving -= 1

    def _go(self, unit: Unit) -> None:
        self._moving += 1
        try:
            self._gathered.go(unit)
        finally:
            self._moving -= 1

    def _enter(self, *_: Any) -> None:
        if not self._frames and self._looking is not None:
            self._looking.__enter__()  # type: ignore[no-untyped-call]
        if not self._frames and torch.is_grad_enabled() and not _in_backward():
            self._saving = saved_tensors_hooks(self._pack, self._unpack)
            self._saving.__enter__()
        self._frames.append(set())

    def _leave(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        read = self._frames.pop()
        if not self._frames and self._saving is not None:
            self._saving.__exit__()
            self._saving = None
        if not self._frames and self._looking is not None:
            self._looking.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._looking = None
        for unit in read & set(self._in(output)) if read else ():
            read.remove(unit)
            if self._frames:
                self._frames[-1].add(unit)
        for unit in read:
            unit.gate.waits = 1
            self._go(unit)

    def _in(self, output: Any) -> Iterator[Unit]:
        """The units in whose memory what a forward returns is."""
        for one in pytree.tree_leaves(output):
            unit = self._unit_of(one) if isinstance(one, Tensor) else None
            if unit is not None:
                yield unit

    def _unit_of(self, tensor: Tensor) -> Unit | None:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return None
        return self._at.get(tensor.untyped_storage().data_ptr())

    def _pack(self, tensor: Tensor) -> Any:
        unit = self._seen(tensor)
        return tensor if unit is None else (unit, tensor)

    def _look(self, tensor: Tensor) -> None:
        if not self._moving:
            self._seen(tensor)

    def _seen(self, tensor: Tensor) -> Unit | None:
        """The unit in whose memory this is, which a forward reads. Raises SettingError if nobody saw it come here."""
        unit = self._unit_of(tensor)
        if unit is not None and not unit.pins:
            layer, _, parameter = unit.name_at(tensor.data_ptr()).rpartition(".")
            raise SettingError(
                f"the network's forward uses {layer}.{parameter}, of which it keeps a reference outside of {layer}, "
                "and with partition.level=3 a worker has it only while it is read through its layer; accepted: "
                f"{layer}.{parameter} at each use, or partition.level=2"
            )
        return unit

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        unit, tensor = packed
        step = torch._C._current_autograd_node()
        if step is not self._step:
            needed, self._step, self._needed = self._needed, step, set()
            for one in needed:
                self._go(one)
        if unit not in self._needed:
            self._needed.add(unit)
            self._use(unit)
        return tensor  # type: ignore[no-any-return]

    def _has_gradient(self, unit: Unit, parameter: Tensor) -> None:
        missing = self._missing.get(unit)
        if missing is not None:
            missing.discard(id(parameter))
            if not missing:
                del self._missing[unit]
                self._go(unit)


class _Looking(TorchDispatchMode):
    """Shows `look` each tensor that a function is given."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: torch would import its compiler, 70 MiB, to tell it that."""
        return False

    def __init__(self, look: Callable[[Tensor], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._look = look

    def __torch_dispatch__(self, function: Any, _types: Any, given: Any = (), named: Any = None) -> Any:
        """Look at all tensors that `function` is given, and call it."""
        for one in pytree.tree_leaves((given, named)):
            if isinstance(one, Tensor):
                self._look(one)
        return function(*given, **(named or {}))


class _Hook:
    """A hook of a module; a copy of the network is not what is trained, and calls nobody."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *seen: Any) -> None:
        self._call(*seen)

    def __reduce__(self) -> Any:
        return _Hook, (_ignore,)


def _ignore(*_: Any) -> None:
    """Ignore a use of a copy of the network."""


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != _OUTSIDE_BACKWARD
