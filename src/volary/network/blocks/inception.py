"""GoogLeNet's inception block: 1 x 1, 3 x 3, 5 x 5 and pooling side by side (Szegedy et al. 2015, arXiv:1409.4842)."""

from __future__ import annotations

from torch import nn

from volary.network.blocks.branches import Branches
from volary.network.blocks.convolution import conv_relu


def inception(channels: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> Branches:
    """Channels of each way, as in the paper's table 1; three and five: (after the reducing 1 x 1, after the way)."""
    return Branches(
        conv_relu(channels, one, 1),
        nn.Sequential(conv_relu(channels, three[0], 1), conv_relu(three[0], three[1], 3, padding=1)),
        nn.Sequential(conv_relu(channels, five[0], 1), conv_relu(five[0], five[1], 5, padding=2)),
        nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_relu(channels, pool, 1)),
    )
