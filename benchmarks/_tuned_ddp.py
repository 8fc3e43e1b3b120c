"""DistributedDataParallel as its friends would set it: what all benchmarks give it that compare a step with its."""

from __future__ import annotations

from inspect import signature
from typing import Any

from torch.nn.parallel import DistributedDataParallel

FUSED = {"fused": True}  # of torch.optim.SGD
# ours sends no buffers either; torch's name for that until 2.11 warns in later ones
_BUFFERS = "forward_sync_buffers"
_SENDS_NONE = _BUFFERS if _BUFFERS in signature(DistributedDataParallel).parameters else "broadcast_buffers"
TUNED: dict[str, Any] = {"gradient_as_bucket_view": True, "static_graph": True, _SENDS_NONE: False}
