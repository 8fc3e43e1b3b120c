"""Which parameters a layer has, in the order of its blobs."""

from __future__ import annotations

from volary.network.caffe.message import CaffeMessage

_WITH_BIAS = {
    "Convolution": "convolution_param",
    "ConvolutionDepthwise": "convolution_param",
    "Deconvolution": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
}
STATISTICS = ("running_mean", "running_var")  # buffers, which have no rate


def parameters_of(layer: CaffeMessage) -> tuple[str, ...]:
    """The names that a layer's parameters have in its module; none of batch norm, whose blobs are statistics."""
    sort = layer.one("type")
    if sort in _WITH_BIAS:
        return ("weight", "bias") if layer.part(_WITH_BIAS[sort]).one("bias_term") else ("weight",)
    if sort == "Scale":
        own = () if len(layer.all("bottom")) > 1 else ("weight",)
        return (*own, "bias") if layer.part("scale_param").one("bias_term") else own
    if sort == "Bias":
        return () if len(layer.all("bottom")) > 1 else ("bias",)
    return ("weight",) if sort in ("Embed", "PReLU") else ()
