"""Lets samples of a data set differ in size, if they can: `data.pad`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from volary.data.batching.padding import IGNORED
from volary.data.datasets.lines import Lines
from volary.data.datasets.user_source import MapSamples
from volary.data.loading.pipeline import Pipeline
from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples


def let_differ(samples: Samples | Stream, check_filled: Callable[[Tensor], None] | None = None) -> None:
    """Fill up those that are smaller than others of their batch. Raises SettingError for samples that cannot differ.

    check_filled: called with targets that are all filled up, where those of a batch differ in size.
    """
    if isinstance(samples, MapSamples):
        samples.let_differ(check_filled)
    elif isinstance(samples, Pipeline):
        samples.pad = True
    elif isinstance(samples, Lines):
        if check_filled is not None:
            check_filled(torch.full((1, 1), IGNORED))
    else:
        raise SettingError(
            "data.pad is true, but this source gives samples of one size; accepted: image files, wav files, text with "
            "lines=true, or a map-style data set of your own"
        )
