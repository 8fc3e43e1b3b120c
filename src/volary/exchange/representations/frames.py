"""Gradients as frames of a codec: to the owner of each slice and back, or to the server that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.exchange.representations._base import Representation

if TYPE_CHECKING:
    from volary.codec._base import FrameCodec, Layer
    from volary.exchange.choice.costs import LinkCosts, WorkTimes
    from volary.exchange.compression.push_encoding import PushEncoding
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import CodedSums, Piece, Site
    from volary.server.client.values import PushedValues


@dataclass(frozen=True)
class Frames(Representation):
    """Frames of a codec: what one left out is added to the next values of the same parameter."""

    frames: FrameCodec

    @classmethod
    def of(cls, codec: FrameCodec) -> Frames:
        """The representation by frames of this codec."""
        return cls(codec)

    @property
    def name(self) -> str:
        return self.frames.name

    @property
    def whole_rows(self) -> bool:
        return self.frames.by_rows

    def link_bytes(self, layer: Layer, links: LinkCosts) -> float:
        """Bytes of frames, to the owners of slices and back."""
        return links.sliced_bytes(self.frames.frame_bytes(layer.rows, layer.columns))

    def work_s(self, layer: Layer, links: LinkCosts, work: WorkTimes) -> float:
        """Seconds of work: each worker encodes once, and adds and decodes as much."""
        matrix_s = work.matrices.get(self.name, 0.0) if self.frames.by_rows else 0.0
        return work.codecs[self.name] * layer.values + matrix_s

    def pushed_bytes(self, layer: Layer, servers: int) -> float:
        return self.frames.frame_bytes(layer.rows, layer.columns)

    def at(self, samples: int) -> Frames:
        return Frames(self.frames.at(samples))

    def wire_bytes(self, values: int, value_bytes: int) -> int:
        return self.frames.frame_bytes(1, values)

    def sums(self, plans: Sequence[BucketPlan], site: Site) -> CodedSums:
        """Sum frames: the rank that owns a slice adds it up, and encodes it again if all are to have it."""
        if site.owned is not None:
            from volary.exchange.compression.encoded_shares import EncodedShares

            return EncodedShares(site.group, plans, site.owned, site.errors, site.left_out)
        from volary.exchange.compression.encoded_sums import EncodedSums

        return EncodedSums(site.group, plans, site.topology, site.errors, site.left_out)

    def pushed(self, piece: Piece, encoding: PushEncoding) -> PushedValues:
        return encoding.slice(piece)

    def __str__(self) -> str:
        return f"by codec {self.frames}"


REPRESENTATION = Frames
