"""Inception-v3's five blocks (Szegedy et al. 2016, arXiv:1512.00567, figures 5 to 7 and 10; sizes as in TensorFlow)."""

from __future__ import annotations

from functools import partial

from torch import nn

from volary.network.blocks.branches import Branches
from volary.network.blocks.convolution import conv_bn_relu

conv = partial(conv_bn_relu, eps=0.001)
ROW, COLUMN = (1, 7), (7, 1)
PAD_ROW, PAD_COLUMN = (0, 3), (3, 0)


def pool_then_conv(channels: int, out: int) -> nn.Module:
    """The pooling way of the blocks that keep the size."""
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), conv(channels, out, 1))


def block_35(channels: int, pool: int) -> Branches:
    """A block at 35 x 35: 5 x 5, and two 3 x 3. Gives 224 + `pool` channels."""
    return Branches(
        conv(channels, 64, 1),
        nn.Sequential(conv(channels, 48, 1), conv(48, 64, 5, padding=2)),
        nn.Sequential(conv(channels, 64, 1), conv(64, 96, 3, padding=1), conv(96, 96, 3, padding=1)),
        pool_then_conv(channels, pool),
    )


def reduce_to_17(channels: int) -> Branches:
    """A block from 35 x 35 to 17 x 17. Gives 480 + `channels` channels."""
    return Branches(
        conv(channels, 384, 3, stride=2),
        nn.Sequential(conv(channels, 64, 1), conv(64, 96, 3, padding=1), conv(96, 96, 3, stride=2)),
        nn.MaxPool2d(3, stride=2),
    )


def block_17(channels: int, width: int) -> Branches:
    """A block at 17 x 17: 7 x 7 as a row and a column, once and twice. Gives 768 channels."""
    return Branches(
        conv(channels, 192, 1),
        nn.Sequential(
            conv(channels, width, 1),
            conv(width, width, ROW, padding=PAD_ROW),
            conv(width, 192, COLUMN, padding=PAD_COLUMN),
        ),
        nn.Sequential(
            conv(channels, width, 1),
            conv(width, width, COLUMN, padding=PAD_COLUMN),
            conv(width, width, ROW, padding=PAD_ROW),
            conv(width, width, COLUMN, padding=PAD_COLUMN),
            conv(width, 192, ROW, padding=PAD_ROW),
        ),
        pool_then_conv(channels, 192),
    )


def reduce_to_8(channels: int) -> Branches:
    """A block from 17 x 17 to 8 x 8. Gives 512 + `channels` channels."""
    return Branches(
        nn.Sequential(conv(channels, 192, 1), conv(192, 320, 3, stride=2)),
        nn.Sequential(
            conv(channels, 192, 1),
            conv(192, 192, ROW, padding=PAD_ROW),
            conv(192, 192, COLUMN, padding=PAD_COLUMN),
            conv(192, 192, 3, stride=2),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def row_and_column(channels: int) -> Branches:
    """3 x 3 as a row beside a column. Gives 768 channels."""
    return Branches(conv(channels, 384, (1, 3), padding=(0, 1)), conv(channels, 384, (3, 1), padding=(1, 0)))


def block_8(channels: int) -> Branches:
    """A block at 8 x 8, widened by rows beside columns. Gives 2048 channels."""
    return Branches(
        conv(channels, 320, 1),
        nn.Sequential(conv(channels, 384, 1), row_and_column(384)),
        nn.Sequential(conv(channels, 448, 1), conv(448, 384, 3, padding=1), row_and_column(384)),
        pool_then_conv(channels, 192),
    )
