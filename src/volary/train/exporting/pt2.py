"""torch.export's .pt2: a graph that `torch.export.load` reads without the code of the network."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import torch

from volary.network.criteria.fit import main_output
from volary.train.exporting.traced import compared, traced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from volary.train.predicting.predictor import Predictor

ABOUT = "volary.json"  # the extra file that has the description


def content(predictor: Predictor, about: Mapping[str, str]) -> tuple[bytes, float]:
    """The file, and by how much its outputs differ from the network's; see `compared`. Raises as that and `traced`."""
    written = io.BytesIO()
    torch.export.save(traced(predictor), written, extra_files={ABOUT: json.dumps(dict(about), ensure_ascii=False)})
    read = torch.export.load(io.BytesIO(written.getvalue())).module()
    return written.getvalue(), compared(predictor, lambda inputs: main_output(read(inputs)), "the .pt2")
