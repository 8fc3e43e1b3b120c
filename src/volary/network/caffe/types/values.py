"""Layers that look at each value by itself, or that combine values at the same place."""

from __future__ import annotations

from typing import Any

from volary.errors import SettingError
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.types.translation import ENGINE, CaffeLayer, Translated
from volary.network.layers.activation import ActivationLayer
from volary.network.layers.clip import ClipLayer
from volary.network.layers.dropout import DropoutLayer
from volary.network.layers.elementwise import ElementwiseLayer
from volary.network.layers.exp import ExpLayer
from volary.network.layers.log import LogLayer
from volary.network.layers.power import PowerLayer
from volary.network.layers.softmax import SoftmaxLayer
from volary.network.layers.threshold import ThresholdLayer

_OPERATIONS = {"SUM": "sum", "PROD": "product", "MAX": "maximum"}


def relu(layer: CaffeLayer) -> Translated:
    """ReLU, or with a negative slope."""
    settings = layer.settings("relu_param")
    layer.ignore(settings, "engine", why=ENGINE)
    slope = settings.one("negative_slope")
    return Translated(ActivationLayer(function="leaky_relu" if slope else "relu", slope=slope or None))


def elu(layer: CaffeLayer) -> Translated:
    """ELU, with what negative values tend to."""
    return Translated(ActivationLayer(function="elu", slope=layer.settings("elu_param").one("alpha")))


def sigmoid(layer: CaffeLayer) -> Translated:
    """The logistic function of each value."""
    layer.ignore(layer.settings("sigmoid_param"), "engine", why=ENGINE)
    return Translated(ActivationLayer(function="sigmoid"))


def tanh(layer: CaffeLayer) -> Translated:
    """The hyperbolic tangent of each value."""
    layer.ignore(layer.settings("tanh_param"), "engine", why=ENGINE)
    return Translated(ActivationLayer(function="tanh"))


def absolute(_: CaffeLayer) -> Translated:
    """The magnitude of each value."""
    return Translated(ActivationLayer(function="abs"))


def softplus(_: CaffeLayer) -> Translated:
    """log(1 + exp(x)), which Caffe calls BNLL."""
    return Translated(ActivationLayer(function="softplus"))


def swish(layer: CaffeLayer) -> Translated:
    """X * sigmoid(x); another beta than 1 is refused. Raises SettingError for it."""
    beta = layer.settings("swish_param").one("beta")
    if beta != 1:
        raise SettingError(f"beta is {beta:g}; accepted: 1")
    return Translated(ActivationLayer(function="silu"))


def power(layer: CaffeLayer) -> Translated:
    """(shift + scale * x) ** power."""
    settings = layer.settings("power_param")
    names = ("power", "scale", "shift")
    return Translated(PowerLayer(**{name: settings.one(name) for name in names}))


def exponential(layer: CaffeLayer) -> Translated:
    """Base ** (shift + scale * x); a base of -1 is e."""
    return Translated(ExpLayer(**_of_line(layer.settings("exp_param"))))


def logarithm(layer: CaffeLayer) -> Translated:
    """The logarithm of shift + scale * x; a base of -1 is e."""
    return Translated(LogLayer(**_of_line(layer.settings("log_param"))))


def _of_line(settings: CaffeMessage) -> dict[str, Any]:
    base = settings.one("base")
    return {"base": None if base == -1 else base, "scale": settings.one("scale"), "shift": settings.one("shift")}


def clip(layer: CaffeLayer) -> Translated:
    """Values from min to max. Raises SettingError if one of them is missing."""
    settings = layer.settings("clip_param")
    for name in ("min", "max"):
        if name not in settings:
            raise SettingError(f"{name} is missing; accepted: min and max")
    return Translated(ClipLayer(low=settings.one("min"), high=settings.one("max")))


def threshold(layer: CaffeLayer) -> Translated:
    """1 where a value is above the threshold, 0 elsewhere."""
    return Translated(ThresholdLayer(above=layer.settings("threshold_param").one("threshold")))


def dropout(layer: CaffeLayer) -> Translated:
    """While training, values that stay are larger by 1 / (1 - ratio), as in torch."""
    return Translated(DropoutLayer(rate=layer.settings("dropout_param").one("dropout_ratio")))


def softmax(layer: CaffeLayer) -> Translated:
    """Shares along an axis, by default the channels."""
    settings = layer.settings("softmax_param")
    layer.ignore(settings, "engine", why=ENGINE)
    return Translated(SoftmaxLayer(axis=settings.one("axis")))


def eltwise(layer: CaffeLayer) -> Translated:
    """A sum, perhaps with coefficients, a product or a maximum of blobs of one shape."""
    settings = layer.settings("eltwise_param")
    layer.ignore(settings, "stable_prod_grad", why="it says in which way Caffe computes the same gradient")
    coefficients = tuple(settings.all("coeff")) or None
    return Translated(
        ElementwiseLayer(operation=_OPERATIONS[settings.one("operation")], coefficients=coefficients)  # type: ignore[arg-type]
    )
