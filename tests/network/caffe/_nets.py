"""Small networks of Caffe's in text, made and run, and weights for them by the project's own writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.module import build, inputs_of
from volary.network.caffe.reading.binary import written
from volary.network.caffe.reading.text import parse
from volary.network.caffe.source import net_source
from volary.network.caffe.weights.blob import blob_from
from volary.network.caffe.weights.files import read_weights
from volary.network.caffe.weights.loading import load

CHECKOUT = Path(__file__).resolve().parents[3]
SHARED = CHECKOUT.parent / "shared"
SAMPLES = 24  # of the fixture `digits`


def source_of(text, name="net.prototxt"):
    findings = Findings(name)
    return net_source(parse(text, "Net", findings), findings)


def input_layer(*shapes, names=("data", "other")):
    """An Input layer in text: a blob for each shape (with the batch)."""
    tops = " ".join(f'top: "{name}"' for name, _ in zip(names, shapes, strict=False))
    dims = " ".join(f"shape {{ dim: {list(shape)} }}" for shape in shapes)
    return f'layer {{ name: "input" type: "Input" {tops} input_param {{ {dims} }} }}\n'


def caffemodel(file, blobs, *, legacy=False):
    """A file of weights with these arrays, by layer."""
    net = CaffeMessage("Net")
    for name, arrays in blobs.items():
        layer = CaffeMessage("Layer").add("name", name)
        net.add("layer", layer.add("blobs", *(blob_from(one, legacy=legacy) for one in arrays)))
    file.write_bytes(written(net))
    return file


def solverstate(file, iterations, weights, histories):
    """A snapshot of a solver with these arrays, which names a file of weights."""
    state = CaffeMessage("SolverState").add("iter", iterations).add("learned_net", weights)
    file.write_bytes(written(state.add("history", *map(blob_from, histories))))
    return file


def computed(text, *inputs, weights=None, train=False, outputs=()):
    """A network's outputs for arrays: one, or several; weights: a file."""
    source = source_of(text)
    module, translation = build(source, inputs_of(source), outputs)
    if weights is not None:
        load(module, translation, read_weights(weights), source.findings)
    module.train(train)
    with torch.no_grad():
        given = tuple(torch.from_numpy(np.asarray(one, dtype=np.float32)) for one in inputs)
        found = module(given[0] if len(given) == 1 else given)
    return [one.numpy() for one in found] if isinstance(found, tuple) else found.numpy()
