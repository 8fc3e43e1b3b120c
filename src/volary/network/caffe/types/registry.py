"""All of Caffe's layer types: those that become layers of a graph, data, losses, and those that cannot be had."""

from __future__ import annotations

from volary.network.caffe.types import arranging, values, weighted, windows
from volary.network.caffe.types.translation import Translate

LAYERS: dict[str, Translate] = {
    "AbsVal": values.absolute,
    "BatchNorm": weighted.batch_norm,
    "BNLL": values.softplus,
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
    "Flatten": arranging.flatten,
    "InnerProduct": weighted.inner_product,
    "LRN": windows.local_response,
    "Permute": arranging.permute,
    "Pooling": windows.pooling,
    "Power": values.power,
    "PReLU": weighted.prelu,
    "ReLU": values.relu,
    "Reshape": arranging.reshape,
    "Scale": weighted.scale,
    "Sigmoid": values.sigmoid,
    "Slice": arranging.slices,
    "Softmax": values.softmax,
    "Swish": values.swish,
    "TanH": values.tanh,
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
    "ShuffleChannel": "is a layer of a fork of Caffe that is not built",
    **dict.fromkeys(
        ("ArgMax", "BatchReindex", "Bias", "Exp", "Filter", "Im2col", "Log", "MVN", "Parameter", "Reduction"),
        "is known but not built",
    ),
    **dict.fromkeys(("SPP", "Threshold", "Tile", "LSTM", "RNN", "Recurrent", "Clip"), "is known but not built"),
}
