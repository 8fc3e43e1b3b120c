"""One run of a network on samples of zeros, to learn before training whether it takes the data's shape."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from volary.errors import SettingError
from volary.network._evaluating import evaluating
from volary.network.criteria.fit import described

DRY_SAMPLES = 2  # more than one, so that a network that merges samples into one shows it


def try_once(module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype, network: str) -> Any:
    """What `module` gives for DRY_SAMPLES samples of zeros; SettingError with its own first line if it refuses them."""
    tensors = chain(module.parameters(), module.buffers())
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    inputs = torch.zeros(DRY_SAMPLES, *input_shape, dtype=dtype, device=device)
    try:
        # Real and not on the meta device: meta kernels import sympy and dynamo, over a second; this takes milliseconds.
        with evaluating(module), torch.no_grad(), _kept_generators(device):
            return module(inputs)
    except Exception as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        inputs_are = f"{described(input_shape)} and type {str(dtype).removeprefix('torch.')}"
        raise SettingError(
            f"network {network!r} does not take the data's inputs of shape {inputs_are}: {first_line}"
        ) from error


def refuse_merged_samples(output: Any, network: str, samples: int) -> None:
    """SettingError if `output` is a tensor whose first size is not the number of samples that went in."""
    first = output[0] if isinstance(output, tuple) and output else output
    if isinstance(first, Tensor) and (not first.dim() or first.shape[0] != samples):
        raise SettingError(
            f"network {network!r} gives shape {tuple(first.shape)} for {samples} samples; "
            "the first size of its output must be the number of samples (is there a view(-1, n) in it?)"
        )


def _kept_generators(device: torch.device) -> Any:
    """Random generators as they are, afterwards: a dry run must not change the training that follows."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
