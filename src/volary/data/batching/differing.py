"""Lets samples of a data set differ in size, if they can: `data.pad`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.datasets.lines import Lines
from volary.data.datasets.own import MapSamples
from volary.data.loading.pipeline import Pipeline
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples


def let_differ(samples: Samples | Stream) -> None:
    """Fill up those that are smaller than others of their batch. Raises SettingError for samples that cannot differ."""
    if isinstance(samples, MapSamples):
        samples.let_differ()
    elif isinstance(samples, Pipeline):
        samples.pad = True
    elif not isinstance(samples, Lines):
        raise SettingError(
            "data.pad is true, but this source gives samples of one size; accepted: image files, wav files, text with "
            "lines=true, or a map-style data set of your own"
        )
