"""Checks that a user's values can be kept: nothing that could run when it is read. Names the part that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from volary.train.state.held import without_values
from volary.train.state.state_file import packed, unpacked

ACCEPTED = "tensors, numbers, text, NumPy arrays, and lists, tuples and dicts of these"


def keepable(value: Any, where: str = "") -> tuple[Any, dict[str, str]]:
    """Return what can be kept of a value, and by place the type of each part that cannot; such a part is None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.tensor(value)
    if loads(value):
        return value, {}
    if not isinstance(value, dict | list | tuple):
        return None, {where: type(value).__name__}
    refused: dict[str, str] = {}
    parts = []
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        found, missing = keepable(part, f"{where}[{key!r}]")
        parts.append((key, found))
        refused |= missing
    if isinstance(value, dict):
        return dict(parts), refused
    return (list if isinstance(value, list) else tuple)(part for _, part in parts), refused


def loads(value: Any) -> bool:
    """Whether a value can be read again without that anything runs. It goes by types: tensors may be large."""
    try:
        unpacked(packed(without_values(value)), Path("value"))
    except Exception:  # whatever pickle says of a type, and what would not be loaded
        return False
    return True
