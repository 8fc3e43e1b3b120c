"""Residuals that decay, against the recursions that SparseLoCo and DeMo were published with, in 64 bits."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from volary.codec._base import Encoded, FrameCodec
from volary.codec.dct import Dct
from volary.codec.topk import TopK
from volary.exchange.choice.bucketing import plan
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.compression.sections import cut
from volary.exchange.representations.frames import Frames

SHAPE, STEPS, PEERS = (200, 130), 6, 2


def quantised(values: Tensor) -> Tensor:
    """Signs, and the means of the magnitudes up to their mean, and above it."""
    large = values.abs() > values.abs().mean()
    means = torch.where(large, values[large].abs().mean(), values[~large].abs().mean())
    return means * values.sign()


def largest(values: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Where those of the largest magnitude are, and they themselves."""
    where = values.abs().topk(max(1, round(ratio * values.numel()))).indices
    return where, values[where]


def sparse(codec: TopK, values: Tensor) -> Tensor:
    """Q(top-k(values)), chunk by chunk (Sarfi et al. 2025, algorithm 1)."""
    out = torch.zeros_like(values).view(-1)
    for chunk, into in zip(values.view(-1).split(codec.block), out.split(codec.block), strict=True):
        where, kept = largest(chunk, codec.ratio)
        into[where] = quantised(kept)
    return out.view_as(values)


def transformed(codec: Dct, values: Tensor) -> Tensor:
    """The inverse transform of the top-k of the transform, tile by tile (Peng et al. 2024, section 3)."""
    out = torch.zeros_like(values)
    for rows in range(0, SHAPE[0], 64):
        for columns in range(0, SHAPE[1], 64):
            tile = values[rows : rows + 64, columns : columns + 64]
            down, across = (waves(side) for side in tile.shape)
            coefficients = (down @ tile @ across.T).view(-1)
            where, kept = largest(coefficients, codec.ratio)
            few = torch.zeros_like(coefficients).index_copy(0, where, kept).view(tile.shape)
            out[rows : rows + 64, columns : columns + 64] = down.T @ few @ across
    return out


@cache
def waves(side: int) -> Tensor:
    """The orthonormal DCT-II, as Wikipedia has it."""
    rows = [[math.cos(math.pi / side * (n + 0.5) * k) for n in range(side)] for k in range(side)]
    scale = torch.full((side, 1), math.sqrt(2 / side), dtype=torch.float64)
    scale[0] = math.sqrt(1 / side)
    return scale * torch.tensor(rows, dtype=torch.float64)


CODECS = {
    "SparseLoCo": (TopK(ratio=0.02, bits=2, decay=0.95), sparse),
    "DeMo": (Dct(decay=0.9), transformed),
}


class Contributor:
    """One worker's residual, and what its frames say."""

    def __init__(self, codec: FrameCodec) -> None:
        layout = plan([("it", nn.Parameter(torch.empty(SHAPE)))], 1.0, {"it": Frames(codec)})
        self.residual = ErrorFeedback(layout).of(layout[0])
        [self._sections] = cut(layout[0], codec, layout[0].head, layout[0].shape.numel, 1)

    def contribute(self, values: Tensor) -> list[Tensor]:
        """The frames of the sections."""
        frames = []
        for section, part in self._parts(values):
            frames.append(torch.empty(section.frame_bytes, dtype=torch.uint8))
            assert self.residual.contribute(section, part, frames[-1]) is Encoded.WHOLE
        return frames

    def agree(self, values: Tensor, others: list[list[Tensor]]) -> list[Tensor]:
        """As the owner, the frames of the sum."""
        frames = []
        for number, (section, part) in enumerate(self._parts(values)):
            frames.append(torch.empty(section.frame_bytes, dtype=torch.uint8))
            parts = [other[number] for other in others]
            assert self.residual.agree(section, part, parts, frames[-1]) is Encoded.WHOLE
        return frames

    def decoded(self, frames: list[Tensor]) -> Tensor:
        out = torch.empty(SHAPE)
        for (section, part), frame in zip(self._parts(out), frames, strict=True):
            self.residual.decode(section, frame, part)
        return out

    def _parts(self, values: Tensor):
        flat, first = values.view(-1), self._sections[0].start
        return [(one, flat[one.start - first : one.end - first]) for one in self._sections]


def changes(worker: int, step: int) -> Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(100 * worker + step))


@pytest.mark.parametrize("name", CODECS)
def test_what_servers_add_up_is_what_the_published_recursion_does(name):
    codec, reference = CODECS[name]
    workers = [Contributor(codec) for _ in range(PEERS)]
    momenta = [torch.zeros(SHAPE, dtype=torch.float64) for _ in workers]
    for step in range(STEPS):
        for number, worker in enumerate(workers):
            change = changes(number, step)
            momenta[number] = codec.decay * momenta[number] + change
            sent = reference(codec, momenta[number])
            momenta[number] -= sent
            found = worker.decoded(worker.contribute(change.clone())).double()
            torch.testing.assert_close(found, sent, rtol=0, atol=1e-5, msg=f"step {step}, worker {number}")


@pytest.mark.parametrize("name", CODECS)
def test_an_owner_s_momentum_has_what_others_sent_and_what_its_own_frames_left_out(name):
    codec, reference = CODECS[name]
    owner, other = Contributor(codec), Contributor(codec)
    own, others = (torch.zeros(SHAPE, dtype=torch.float64) for _ in range(2))
    for step in range(STEPS):
        others = codec.decay * others + changes(1, step)
        came = reference(codec, others)
        others -= came
        own = codec.decay * own + changes(0, step) + came
        agreed = reference(codec, own)
        own -= agreed
        frames = owner.agree(changes(0, step), [other.contribute(changes(1, step))])
        torch.testing.assert_close(owner.decoded(frames).double(), agreed, rtol=0, atol=1e-5, msg=f"step {step}")
