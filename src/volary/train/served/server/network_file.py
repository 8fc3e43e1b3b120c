"""A network without its code, in a file of the run's directory: what servers keep of a loop of one's own.

A session's servers build the network themselves. Of a loop of one's own nobody knows what it builds: its first worker
writes names, shapes, strides and values of the tensors, and the optimiser's type and settings, and servers read them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn

from volary.errors import BadInput
from volary.exchange.gradients.plain_layers import plain_layers
from volary.exchange.gradients.plan import in_memory_order
from volary.naming import named_modules, named_parameters
from volary.run.disk import Disk, replace_file
from volary.train.served.server.loop_optimizer import LoopOptimizer
from volary.train.state.weights import weights_of

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

FILE = "network.safetensors"  # in a run's directory
HERE = "network"  # the key on the run's board, once the file is written
_HEADER = "network"


class _Tensor(msgspec.Struct, frozen=True):
    """name: with its module's. trained: None for a buffer."""

    name: str
    shape: list[int]
    stride: list[int]
    trained: bool | None


class LoopNetwork(msgspec.Struct, frozen=True):
    """The header of the file. linear: names of the fully connected layers. plan: what the first worker pushes.

    samples: of all workers, whose gradients it pushes at once; 0: of which none leave as factors. order: of its
    samples, as `ReplayedOrder` takes it.
    """

    modules: list[str]
    linear: list[str]
    tensors: list[_Tensor]
    optimizer: LoopOptimizer
    samples: int
    plan: list[str]
    order: bytes = b""


def write_network(
    folder: Path, module: nn.Module, optimizer: LoopOptimizer, samples: int, plan: Sequence[str], order: bytes = b""
) -> None:
    """Write the network as it is now, how it is updated, and what decides the order of samples. Raises OSError."""
    modules = [name for name, _ in named_modules(module)]
    linear = {id(part) for part, _ in plain_layers(module) if type(part) is nn.Linear}
    parameters = dict(named_parameters(module))
    described, values = [], dict[str, torch.Tensor]()
    for name, tensor in weights_of(module).items():
        lies = torch.empty_like(tensor, device="meta")  # as a dense one: gaps, if there are any, stay here
        trained = parameters[name].requires_grad if name in parameters else None
        described.append(_Tensor(name, list(lies.shape), list(lies.stride()), trained))
        values[name] = in_memory_order(torch.empty_like(lies, device="cpu").copy_(tensor))
    header = LoopNetwork(
        modules,
        [name for name, part in named_modules(module) if id(part) in linear],
        described,
        optimizer,
        samples,
        list(plan),
        order,
    )
    data = save(values, {_HEADER: json.dumps(msgspec.to_builtins(header))})
    replace_file(Disk(), folder / FILE, data)


def read_network(folder: Path) -> tuple[nn.Module, LoopNetwork]:
    """The network's tensors in modules of the same names, which compute nothing, and what is said of them."""
    with safe_open(folder / FILE, framework="pt") as file:
        header = msgspec.convert(json.loads(file.metadata()[_HEADER]), LoopNetwork)
        whole = nn.Module()
        for name in header.modules:
            _put(whole, name, _layer() if name in header.linear else nn.Module())
        for one in header.tensors:
            values = file.get_tensor(one.name).as_strided(one.shape, one.stride)
            _hold(whole, one, values)
    return whole, header


def _layer() -> nn.Linear:
    layer = nn.Linear(1, 1, bias=False, device="meta")
    layer._parameters.clear()
    return layer


def _put(whole: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    if last:
        whole.get_submodule(parent).add_module(last, part)


def _hold(whole: nn.Module, one: _Tensor, values: Tensor) -> None:
    parent, _, last = one.name.rpartition(".")
    owner = whole.get_submodule(parent)
    if one.trained is None:
        owner.register_buffer(last, values)
    else:
        owner.register_parameter(last, nn.Parameter(values, requires_grad=one.trained))


def load_values(module: nn.Module, folder: Path) -> LoopNetwork:
    """Let a worker's network have the values in the file; the rest of it. Raises BadInput if they do not fit."""
    found, header = read_network(folder)
    theirs = weights_of(found)
    with torch.no_grad():
        for name, tensor in weights_of(module).items():
            if name not in theirs or theirs[name].shape != tensor.shape:
                raise BadInput(f"{name} is not what it is on the run's first worker")
            tensor.copy_(theirs[name])
    return header
