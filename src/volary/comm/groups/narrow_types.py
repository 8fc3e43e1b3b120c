"""The types of 16 bits in which values of layers may pass from rank to rank, by the name that settings give them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

NARROW: Mapping[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
WIDE = (torch.float32, torch.float64)  # which pass in those; whatever else is as short, or is no number to be rounded
