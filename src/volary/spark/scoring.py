"""A trained network over columns: what comes out as which column, checked with one row, then for batch after batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from volary.data.loading.image_settings import ImageSettings
from volary.errors import BadInput
from volary.errors.raised import raised
from volary.executors.arrays import ColumnLayout, inputs_of, refuse_null
from volary.network.criteria.classification import Classification
from volary.session.values.reference import name_of
from volary.spark.scoring_network import LoadedNetwork, ScoringNetwork, loaded, session_of
from volary.train.model import build_criterion

PREDICTION, PROBABILITY = "prediction", "probability"
_ANSWERS = (PREDICTION, PROBABILITY)


@dataclass(frozen=True)
class Scoring:
    """Which columns a network makes of which others. outputs: `prediction`, `probability`, or names of layers.

    classifies: whether the network's output are scores of classes. decodes: the one column is of image files, which are
    prepared as the run's validation data. shapes: of each output, without the rows.
    """

    network: ScoringNetwork
    layout: ColumnLayout
    outputs: tuple[str, ...]
    classifies: bool
    decodes: bool
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def tried(
        cls, network: ScoringNetwork, layout: ColumnLayout, outputs: Sequence[str], *, decodes: bool = False
    ) -> Scoring:
        """Try the network on a row of zeros. Raises BadInput if it does not take the columns, or has no such output."""
        if decodes:
            _require_images(session_of(network.session).data.source, layout)
        classifies = isinstance(build_criterion(session_of(network.session)), Classification)
        if PROBABILITY in outputs and not classifies:
            raise BadInput("outputs: 'probability' is of networks that tell classes apart; accepted: prediction")
        if len(set(outputs)) < len(outputs) or not outputs:
            raise BadInput(f"outputs is {', '.join(outputs) or 'empty'}; accepted: names, each once")
        if layout.kind == "numbers" and not layout.shape and network.input_shape != (len(layout.inputs),):
            raise BadInput(
                f"inputs are {len(layout.inputs)} columns of numbers, and the network takes {network.input_shape}"
            )
        loose = cls(network, layout, tuple(outputs), classifies, decodes, {})
        found = loose.values(np.zeros((1, *network.input_shape), np.float32))
        return replace(loose, shapes={name: values.shape[1:] for name, values in found.items()})

    def schema(self) -> str:
        """The columns that are made, as Spark names their types: numbers, or arrays of all values of a row."""
        kinds = {name: "array<float>" if prod(shape) != 1 or shape else "double" for name, shape in self.shapes.items()}
        return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())

    def values(self, inputs: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs (rows, ...) of inputs (rows, ...). Raises BadInput for inputs that the network does not take."""
        if inputs.shape[1:] != self.network.input_shape and inputs[:1].size == prod(self.network.input_shape):
            inputs = inputs.reshape(len(inputs), *self.network.input_shape)
        try:
            writable = np.require(inputs, requirements=("C", "W"))  # Arrow's memory is not
            found = self._loaded.compute(torch.from_numpy(writable))
        except BadInput:  # there is no such layer
            raise
        except Exception as error:  # whatever a network of the user's own raises
            shape = self.network.input_shape
            raise BadInput(f"the network takes {shape}, not {inputs.shape[1:]}: {raised(error).error}") from error
        return {name: found[name].numpy() if name in found else self._answer(name, found[""]) for name in self.outputs}

    def columns(self, *columns: Any) -> Any:
        """Make an Arrow array of structures of Arrow's columns of the layout."""
        arrow: Any = import_module("pyarrow")
        batch = arrow.RecordBatch.from_arrays(list(columns), names=list(self.layout.inputs))
        inputs, sizes, parts, first = self._prepared(batch), self._loaded.sizes, [], 0
        while first < len(batch):
            size = sizes.size
            rows = inputs(first, size)
            with sizes.timed(len(rows)):
                parts.append(self.values(rows))
            first += size
        made = []
        for name, shape in self.shapes.items():
            found = np.concatenate([part[name] for part in parts]) if parts else np.empty((0, *shape), np.float32)
            made.append(_column(arrow, found, shape))
        return arrow.StructArray.from_arrays(made, names=list(self.shapes))

    @property
    def _loaded(self) -> LoadedNetwork:
        layers = tuple(name for name in self.outputs if name not in _ANSWERS)
        return loaded(self.network, layers, len(layers) < len(self.outputs))

    def _prepared(self, batch: Any) -> Callable[[int, int], np.ndarray[Any, Any]]:
        """Return a function that gives inputs (rows, ...) of a batch, from a first row on and so many at most."""
        if self.decodes:
            source, (name,), (column,) = session_of(self.network.session).data.source, self.layout.inputs, batch.columns
            refuse_null(column, name)
            return lambda first, count: source.prepared(
                column.slice(first, count).to_pylist(), lambda row: f"column {name!r}, row {first + row} of a batch"
            ).numpy()
        inputs = inputs_of(batch, self.layout)

        def rows(first: int, count: int) -> np.ndarray[Any, Any]:
            found = inputs[first : first + count]
            return found.astype(np.float32) / 255 if found.dtype == np.uint8 else found

        return rows

    def _answer(self, name: str, output: Tensor) -> np.ndarray[Any, Any]:
        if name == PROBABILITY:
            found = output.softmax(-1)
        elif self.classifies:
            found = output.argmax(-1).double()
        else:
            found = output.squeeze(-1).double() if output.shape[1:] == (1,) else output
        return found.numpy()


def _require_images(source: Any, layout: ColumnLayout) -> None:
    if not isinstance(source, ImageSettings):
        raise BadInput(
            f"decode is true, and source {name_of(source)!r} of the run reads no image files; accepted: false"
        )
    if layout.kind != "bytes":
        raise BadInput(
            f"decode is true, and column {layout.inputs[0]!r} is not binary; accepted: image files as binary"
        )


def _column(arrow: Any, values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return arrow.array(values.astype(np.float64))
    flat = values.astype(np.float32).reshape(len(values), prod(shape))
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return arrow.ListArray.from_arrays(offsets, flat.ravel())
