"""A network as compiled code (torch.compile: Ansel et al. 2024)."""

from __future__ import annotations

import os
import shutil
from typing import cast

import torch
from torch import nn

from volary.errors import SettingError

COMPILERS = ("g++", "clang++")


def compiled(module: nn.Module, device: torch.device) -> nn.Module:
    """The network with the same parameters and names, which is compiled for each shape of inputs when it first runs.

    Code for any shape would depend on which shapes came before, and a resumed run sees others than the whole one.
    Raises SettingError where a CPU's code needs a compiler of C++ that is not there.
    """
    wanted = os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), "")
    if device.type == "cpu" and not shutil.which(wanted):
        raise SettingError(
            f"train.compile: no compiler of C++ is here ({', '.join(COMPILERS)}, or what CXX names); accepted: "
            "compile=false, or a machine with one"
        )
    return cast(nn.Module, torch.compile(module, dynamic=False))
