"""Weights of a file in a module: each blob in the parameter that its layer has for it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from volary.network.caffe.findings import Findings
from volary.network.caffe.types.parameters import STATISTICS, parameters_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.network.caffe.translating import NamedTranslation, Translation
    from volary.network.caffe.weights.blob import Blob
    from volary.network.caffe.weights.files import Weights


def load(
    module: nn.Module, translation: Translation, weights: Weights, findings: Findings, *, fresh: bool = False
) -> None:
    """Overwrite the module's parameters and statistics with a file's blobs, by the layers' names.

    fresh: layers without blobs keep the values that they have. Blobs of layers that the network lacks are left out.
    Raises SettingError with a sentence for each layer that has no blobs, or blobs of another number or shape.
    """
    seen: set[str] = set()
    for one in translation.layers:
        name = one.message.one("name")
        if not _targets(one) or name in seen or (fresh and name not in weights):
            continue
        seen.add(name)
        if name not in weights:
            findings.add(
                "has no blobs in the weights; accepted: weights of this network, or network.missing=fresh",
                one.message.line,
                name,
            )
            continue
        _load_layer(module.get_submodule(one.layer.name), one, weights[name], findings)
    findings.raise_if_any()


def _load_layer(module: nn.Module, one: NamedTranslation, blobs: list[Blob], findings: Findings) -> None:
    name, line = one.message.one("name"), one.message.line
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    targets = [own[parameter] for parameter in _targets(one)]
    expected = 3 if one.translated.statistics else len(targets)
    if len(blobs) != expected:
        findings.add(f"has {len(blobs)} blobs in the weights; accepted: {expected}", line, name)
        return
    transposed = [one.translated.transposed and number == 0 for number in range(len(blobs))]
    for number, (blob, target) in enumerate(zip(blobs, targets, strict=False)):
        shape = shape_of(target, transposed=transposed[number])
        if not fits(blob, shape):
            findings.add(
                f"blob {number} has the shape {shown(blob.shape)} in the weights; accepted: {shown(shape)}", line, name
            )
            return
    with torch.no_grad():
        if one.translated.statistics:
            factor = float(_tensor(blobs[2]).flatten()[0]) if blobs[2].count else 0.0
            for blob, target in zip(blobs, targets, strict=False):
                target.copy_(_tensor(blob).reshape(target.shape) * (1 / factor if factor else 0.0))
            return
        for number, (blob, target) in enumerate(zip(blobs, targets, strict=True)):
            target.copy_(values_as(blob, target, transposed=transposed[number]))


def shape_of(parameter: Tensor, *, transposed: bool) -> tuple[int, ...]:
    """The shape of a parameter's blob. transposed: it is of the transpose."""
    return tuple(parameter.shape)[:: -1 if transposed else 1]


def values_as(blob: Blob, parameter: Tensor, *, transposed: bool) -> Tensor:
    """The values of a blob that fits, in the shape of its parameter."""
    values = _tensor(blob).reshape(shape_of(parameter, transposed=transposed))
    return values.T if transposed else values


def _targets(one: NamedTranslation) -> tuple[str, ...]:
    """The tensors that a layer's blobs are written to: parameters, or the buffers of batch norm."""
    return STATISTICS if one.translated.statistics else parameters_of(one.message)


def fits(blob: Blob, shape: tuple[int, ...]) -> bool:
    """Whether a blob has this shape, but for sizes of 1 in front, which old files have."""

    def bare(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(size for size in sizes if size != 1)

    return blob.count == prod(shape) and bare(blob.shape) == bare(shape)


def _tensor(blob: Blob) -> Tensor:
    return torch.from_numpy(blob.values().copy())


def shown(shape: tuple[int, ...]) -> str:
    """A shape in messages."""
    return "x".join(map(str, shape)) or "scalar"
