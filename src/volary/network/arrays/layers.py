"""Layers on distributed arrays: each worker has the weights of its part of the outputs, and no other ever has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.errors import BadInput
from volary.network.arrays.boxes import Box, cut
from volary.network.arrays.distributed_array import DistributedArray
from volary.network.blocks.communication import TensorChannel


class Dense(nn.Module):
    """A fully connected layer from `inputs` to `outputs` features, its rows of weights cut over workers.

    weight: (own outputs, inputs), bias: (own outputs,), begun as `nn.Linear` begins, alike for any number of workers.
    """

    def __init__(self, channel: TensorChannel, inputs: int, outputs: int, seed: int = 0) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        own = cut((outputs,), (channel.size,), channel.size)[channel.rank]
        drawn = _drawn(range(own.starts[0], own.ends[0]), inputs + 1, 1 / sqrt(inputs), seed)
        self.weight, self.bias = nn.Parameter(drawn[:, :-1].clone()), nn.Parameter(drawn[:, -1].clone())

    def forward(self, x: DistributedArray) -> DistributedArray:
        """(samples, inputs), cut in any way, to (samples, outputs), cut along outputs. Raises BadInput."""
        if len(x.shape) != 2 or x.shape[1] != self.inputs:
            raise BadInput(f"Dense was given an array of shape {list(x.shape)}; accepted: [samples, {self.inputs}]")
        boxes = cut((x.shape[0], self.outputs), (1, x.channel.size), x.channel.size)
        return DistributedArray(x.channel, functional.linear(x.gather(), self.weight, self.bias), boxes)


class LocallyConnected(nn.Module):
    """Windows as of a convolution, each with weights of its own; the places of its outputs are cut over workers.

    inputs: (channels, height, width). outputs: of each place. grid: parts along height and width, whose product is the
    number of workers; None: along the height alone. weight: (own places, outputs, channels * window * window), bias:
    (own places, outputs), begun alike for any number of workers. Raises BadInput.
    """

    def __init__(
        self,
        channel: TensorChannel,
        inputs: tuple[int, int, int],
        outputs: int,
        window: int,
        stride: int = 1,
        padding: int = 0,
        grid: Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        channels, *sizes = inputs
        self.inputs, self.outputs = inputs, outputs
        self.window, self.stride, self.padding = window, stride, padding
        rows, columns = ((size + 2 * padding - window) // stride + 1 for size in sizes)
        self.places = (rows, columns)
        if min(self.places) < 1 or padding >= window:
            raise BadInput(
                f"LocallyConnected: a window of {window} with padding {padding} has no place in {list(inputs)}; "
                "accepted: a window that fits, with less padding than its size"
            )
        self._cut = cut(self.places, (channel.size, 1) if grid is None else grid, channel.size)
        own = self._cut[channel.rank]
        numbers = [
            row * columns + column
            for row in range(own.starts[0], own.ends[0])
            for column in range(own.starts[1], own.ends[1])
        ]
        fan_in = channels * window * window
        drawn = _drawn(numbers, outputs * (fan_in + 1), 1 / sqrt(fan_in), seed).view(-1, outputs, fan_in + 1)
        self.weight, self.bias = nn.Parameter(drawn[..., :-1].clone()), nn.Parameter(drawn[..., -1].clone())

    def forward(self, x: DistributedArray) -> DistributedArray:
        """(samples, channels, height, width), cut in any way, to (samples, outputs, rows, columns), cut along places.

        A worker gets those entries of others that its windows reach. Raises BadInput.
        """
        if tuple(x.shape[1:]) != self.inputs:
            raise BadInput(
                f"LocallyConnected was given an array of shape {list(x.shape)}; accepted: "
                f"[samples, {', '.join(map(str, self.inputs))}]"
            )
        samples = x.shape[0]
        near = x.recut(boxes=[self._reached(box, samples) for box in self._cut])
        own = self._cut[x.channel.rank]
        boxes = [Box((0, 0, *box.starts), (samples, self.outputs, *box.ends)) for box in self._cut]
        if not own.size or not samples:
            nothing = near.values.sum() + self.weight.sum() + self.bias.sum()  # 0, with its gradients
            return DistributedArray(x.channel, nothing.expand(boxes[x.channel.rank].shape), boxes)
        windows = functional.unfold(self._padded(near.values, own), self.window, stride=self.stride)
        found = torch.einsum("ncp,poc->nop", windows, self.weight) + self.bias.t()
        return DistributedArray(x.channel, found.reshape(boxes[x.channel.rank].shape), boxes)

    def _reached(self, places: Box, samples: int) -> Box:
        """The part of the inputs that the windows at these places reach."""
        spans = []
        for low, high, size in zip(places.starts, places.ends, self.inputs[1:], strict=True):
            start = min(max(low * self.stride - self.padding, 0), size)
            end = min((high - 1) * self.stride - self.padding + self.window, size)
            spans.append((start, max(start, end) if high > low else start))
        return Box((0, 0, *(low for low, _ in spans)), (samples, self.inputs[0], *(high for _, high in spans)))

    def _padded(self, near: Tensor, places: Box) -> Tensor:
        """With zeros where windows at these places reach beyond the image."""
        sides = list[int]()
        for low, high, size in reversed(list(zip(places.starts, places.ends, self.inputs[1:], strict=True))):
            before = max(self.padding - low * self.stride, 0)
            behind = max((high - 1) * self.stride - self.padding + self.window - size, 0)
            sides += [before, behind]
        return functional.pad(near, sides)


def _drawn(rows: Iterable[int], each: int, bound: float, seed: int) -> Tensor:
    """(rows, each): uniform values within `bound`, which belong to a row's number, whoever has it."""
    generator = torch.Generator()
    drawn = [
        torch.empty(each).uniform_(-bound, bound, generator=generator.manual_seed((seed << 32) + row)) for row in rows
    ]
    return torch.stack(drawn) if drawn else torch.empty(0, each)
