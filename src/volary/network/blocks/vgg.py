"""A VGG network: five groups of 3 x 3 convolutions with max pooling, three fully connected layers."""

from __future__ import annotations

from torch import nn

from volary.network.blocks.convolution import conv_relu
from volary.network.blocks.fill import gaussian, he_normal
from volary.network.images import image_shape

WIDTHS = (64, 128, 256, 512, 512)


def vgg(
    depths: tuple[int, int, int, int, int], dropout: float, input_shape: tuple[int, ...], classes: int
) -> nn.Sequential:
    """The network of Simonyan & Zisserman 2014. depths: convolutions in each of its five groups."""
    channels, height, width = image_shape("vgg", input_shape, smallest=32)
    layers: list[nn.Module] = []
    for out, depth in zip(WIDTHS, depths, strict=True):
        for _ in range(depth):
            layers.append(conv_relu(channels, out, 3, padding=1))
            channels = out
        layers.append(nn.MaxPool2d(2))
    classifier = nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * (height // 32) * (width // 32), 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, classes),
    )
    network = nn.Sequential()
    network.add_module("features", nn.Sequential(*layers))
    network.add_module("classifier", classifier)
    he_normal(network)
    for layer in classifier:
        if isinstance(layer, nn.Linear):
            gaussian(layer, 0.01)
    return network
