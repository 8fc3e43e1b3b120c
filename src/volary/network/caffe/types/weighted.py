"""Layers with parameters beside convolutions, and norms: fully connected, embedding, scale, bias, PReLU."""

from __future__ import annotations

from volary.errors import SettingError
from volary.network.caffe.types.fillers import filler
from volary.network.caffe.types.translation import CaffeLayer, Translated
from volary.network.fillers.constant import ConstantFiller
from volary.network.layers.batch_norm import BatchNormLayer
from volary.network.layers.bias import BiasLayer
from volary.network.layers.embedding import EmbeddingLayer
from volary.network.layers.linear import LinearLayer
from volary.network.layers.mean_variance import MeanVarianceLayer
from volary.network.layers.prelu import PreluLayer
from volary.network.layers.scale import ScaleLayer

PRELU_SLOPE = 0.25  # where there is no filler


def inner_product(layer: CaffeLayer) -> Translated:
    """The weight is (out, in) with inputs in the order channels, height, width; or its transpose.

    Raises SettingError without num_output.
    """
    settings = layer.settings("inner_product_param")
    if not settings.one("num_output"):
        raise SettingError("num_output is missing; accepted: a whole number from 1")
    kind = LinearLayer(
        outputs=settings.one("num_output"),
        axis=settings.one("axis"),
        bias=settings.one("bias_term"),
        weight_filler=filler(settings, "weight_filler"),
        bias_filler=filler(settings, "bias_filler"),
    )
    return Translated(kind, transposed=settings.one("transpose"))


def embed(layer: CaffeLayer) -> Translated:
    """A vector for each number; a bias, which all vectors have in common, is refused. Raises SettingError for it."""
    settings = layer.settings("embed_param")
    if settings.one("bias_term"):
        raise SettingError("has a bias; accepted: bias_term: false")
    kind = EmbeddingLayer(
        symbols=settings.one("input_dim"),
        width=settings.one("num_output"),
        weight_filler=filler(settings, "weight_filler"),
    )
    return Translated(kind)


def batch_norm(layer: CaffeLayer) -> Translated:
    """Without factors: a Scale layer has them. By global statistics in TEST, by the batch's in TRAIN, or as it says.

    Raises SettingError for the batch's in TEST.
    """
    settings = layer.settings("batch_norm_param")
    always = "use_global_stats" in settings
    if always and not settings.one("use_global_stats") and layer.phase == "TEST":
        raise SettingError("use_global_stats is false in TEST; accepted: true, or the default there")
    kind = BatchNormLayer(
        eps=settings.one("eps"),
        momentum=1 - settings.one("moving_average_fraction"),
        affine=False,
        statistics="running" if layer.phase == "TRAIN" and settings.one("use_global_stats") else "batch",
    )
    return Translated(kind, statistics=True)


def scale(layer: CaffeLayer) -> Translated:
    """A factor of each channel, and a bias if it says so; or the factors are a second blob."""
    settings = layer.settings("scale_param")
    kind = ScaleLayer(
        axis=settings.one("axis"),
        axes=settings.one("num_axes"),
        bias=settings.one("bias_term"),
        weight_filler=filler(settings, "filler", 1.0),
        bias_filler=filler(settings, "bias_filler"),
    )
    return Translated(kind)


def bias(layer: CaffeLayer) -> Translated:
    """Translate a layer that adds values to each channel, its own or those of a second blob."""
    settings = layer.settings("bias_param")
    kind = BiasLayer(axis=settings.one("axis"), axes=settings.one("num_axes"), filler=filler(settings, "filler"))
    return Translated(kind)


def mean_variance(layer: CaffeLayer) -> Translated:
    """Mean 0 and variance 1 of each channel of a sample, or across its channels."""
    settings = layer.settings("mvn_param")
    kind = MeanVarianceLayer(
        across=settings.one("across_channels"),
        variance=settings.one("normalize_variance"),
        eps=settings.one("eps"),
    )
    return Translated(kind)


def prelu(layer: CaffeLayer) -> Translated:
    """A slope for each channel, or one for all. Raises SettingError for random first values."""
    settings = layer.settings("prelu_param")
    first = filler(settings, "filler", PRELU_SLOPE)
    if not isinstance(first, ConstantFiller):
        raise SettingError("filler is of random values; accepted: constant")
    return Translated(PreluLayer(shared=settings.one("channel_shared"), slope=first.value))
