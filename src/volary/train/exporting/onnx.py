"""ONNX, for other runtimes. Needs the packages onnx and onnxscript (`volary[onnx]`)."""

from __future__ import annotations

import io
import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch

from volary.data.formats.extras import needed
from volary.errors import SettingError
from volary.errors.raised import raised
from volary.train.exporting.traced import compared, traced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from volary.train.predicting.predictor import Predictor

INPUT, OUTPUT, BATCH = "input", "output", "batch"
LARGEST_BYTES = 2 * 2**30  # of a file without others beside it


def content(predictor: Predictor, about: Mapping[str, str]) -> tuple[bytes, float]:
    """The file, and by how much its outputs differ from the network's, computed by the package onnx; see `compared`.

    Raises as that and `traced`, and SettingError for an operation that ONNX has not.
    """
    onnx = needed("onnx", "onnx")
    reference = needed("onnx.reference", "onnx")
    needed("onnxscript", "onnx")
    written = io.BytesIO()
    program = traced(predictor)
    logger = logging.getLogger("torch.onnx")  # what of other packages torch could not find
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own code
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: BATCH},),  # the program has them; this names them
                verbose=False,
            )
            assert made is not None
            model = made.model_proto
    except Exception as error:  # whatever torch raises
        raise SettingError(f"the network cannot be written as ONNX: {raised(error).error}") from error
    finally:
        logger.setLevel(level)
    onnx.helper.set_model_props(model, dict(about))
    if model.ByteSize() >= LARGEST_BYTES:
        raise SettingError(f"the network takes {model.ByteSize():,} bytes as ONNX; accepted: below {LARGEST_BYTES:,}")
    onnx.save_model(model, written)
    run: Any = reference.ReferenceEvaluator(model).run

    def outputs(inputs: Tensor) -> Tensor:
        return torch.from_numpy(run(None, {INPUT: inputs.numpy()})[0])

    return written.getvalue(), compared(predictor, outputs, "the .onnx")
