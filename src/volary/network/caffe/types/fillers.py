"""Caffe's fillers: the first values of parameters (BVLC/caffe, filler.hpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.fillers.bilinear import BilinearFiller
from volary.network.fillers.constant import ConstantFiller
from volary.network.fillers.gaussian import GaussianFiller
from volary.network.fillers.he import HeFiller
from volary.network.fillers.uniform import UniformFiller
from volary.network.fillers.xavier import XavierFiller

if TYPE_CHECKING:
    from volary.network.caffe.message import CaffeMessage
    from volary.network.fillers._base import Filler

_BY = {"FAN_IN": "fan_in", "FAN_OUT": "fan_out", "AVERAGE": "average"}
NAMES = ("constant", "gaussian", "uniform", "xavier", "msra", "bilinear")


def filler(settings: CaffeMessage, name: str, default: float = 0.0) -> Filler:
    """The filler in a field; `default` for all values where there is none. Raises SettingError for one unknown."""
    if name not in settings:
        return ConstantFiller(value=default)
    given = settings.part(name)
    sort, by = given.one("type"), _BY[given.one("variance_norm")]
    if sort == "constant":
        return ConstantFiller(value=given.one("value"))
    if sort == "gaussian":
        if given.one("sparse") >= 0:
            raise SettingError(f"{name} is sparse; accepted: gaussian for all values")
        return GaussianFiller(mean=given.one("mean"), std=given.one("std"))
    if sort == "uniform":
        return UniformFiller(low=given.one("min"), high=given.one("max"))
    if sort in ("xavier", "msra"):
        return XavierFiller(by=by) if sort == "xavier" else HeFiller(by=by)  # type: ignore[arg-type]
    if sort == "bilinear":
        return BilinearFiller()
    raise SettingError(f"{name} is {sort!r}; accepted: {', '.join(NAMES)}")
