"""All of Caffe's layer types: those that become layers of a graph, data, losses, and those that cannot be had."""

from __future__ import annotations

from volary.network.caffe.types import arranging, values, weighted, windows
from volary.network.caffe.types.translation import Translate

LAYERS: dict[str, Translate] = {
    "AbsVal": values.absolute,
    "ArgMax": arranging.arg_max,
    "BatchNorm": weighted.batch_norm,
    "Bias": weighted.bias,
    "BNLL": values.softplus,
    "Clip": values.clip,
    "Concat": arranging.concat,
    "Convolution": windows.convolution,
    "ConvolutionDepthwise": windows.depthwise,
    "Crop": arranging.crop,
    "Deconvolution": windows.deconvolution,
    "DepthwiseConvolution": windows.depthwise,
    "Dropout": values.dropout,
    "ELU": values.elu,
    "Eltwise": values.eltwise,
    "Embed": weighted.embed,
    "Exp": values.exponential,
    "Flatten": arranging.flatten,
    "InnerProduct": weighted.inner_product,
    "Log": values.logarithm,
    "LRN": windows.local_response,
    "MVN": weighted.mean_variance,
    "Permute": arranging.permute,
    "Pooling": windows.pooling,
    "Power": values.power,
    "PReLU": weighted.prelu,
    "Reduction": arranging.reduction,
    "ReLU": values.relu,
    "Reshape": arranging.reshape,
    "Scale": weighted.scale,
    "ShuffleChannel": arranging.shuffle,
    "Sigmoid": values.sigmoid,
    "Slice": arranging.slices,
    "Softmax": values.softmax,
    "SPP": windows.pyramid,
    "Swish": values.swish,
    "TanH": values.tanh,
    "Threshold": values.threshold,
    "Tile": arranging.tile,
}
INPUT = "Input"
DATA = ("Data", "ImageData", "HDF5Data", "DummyData", "MemoryData", "WindowData", "AnnotatedData")
LOSSES = (
    "SoftmaxWithLoss",
    "EuclideanLoss",
    "SigmoidCrossEntropyLoss",
    "HingeLoss",
    "MultinomialLogisticLoss",
    "ContrastiveLoss",
    "InfogainLoss",
)
MEASURES = ("Accuracy",)
ALIASES = ("Split",)  # several names for one blob, which a graph needs no layer for
IGNORED = {
    "Silence": "it computes nothing",
    "HDF5Output": "it writes a file and computes nothing",
}
REFUSED = {
    "Python": "is code of somebody's own; accepted: the same layer as a class of your own in a network of yours",
    "DetectionOutput": "is a layer of a fork of Caffe; cut the network off before it",
    "PriorBox": "is a layer of a fork of Caffe; cut the network off before it",
    "MultiBoxLoss": "is a layer of a fork of Caffe; cut the network off before it",
    **dict.fromkeys(
        ("BatchReindex", "Filter", "Im2col", "LSTM", "Parameter", "RNN", "Recurrent"),
        "is known but not built",
    ),
}
