"""Error feedback: what a frame leaves out of a parameter stays in its residual until it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from volary.codec._base import Encoded, FrameCodec
from volary.exchange.choice.bucketing import plan
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.compression.sections import cut
from volary.exchange.gradients.plan import BucketPlan
from volary.exchange.representations.exact import EXACT
from volary.exchange.representations.frames import Frames


@dataclass(frozen=True, kw_only=True)
class Whole(FrameCodec):
    """Whole numbers travel, up to 127; it remembers how many frames it wrote."""

    block: ClassVar[int] = 8

    feedback: bool = True
    momentum: float = 0.0
    decay: float = 1.0

    def frame_bytes(self, rows: int, columns: int) -> int:
        return rows * columns

    def memory_values(self, rows: int, columns: int) -> int:
        return 1

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        memory += 1
        frame.view(torch.int8).copy_(values.clamp(-127, 127).nan_to_num().trunc().view(-1))
        return bool(values.isfinite().all())

    def decode(self, frame: Tensor, out: Tensor) -> None:
        out.copy_(frame.view(torch.int8).view(out.shape))

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        out.add_(frame.view(torch.int8).view(out.shape), alpha=sign)


def plans(codec: Whole | None, bucket_mb: float = 1.0) -> list[BucketPlan]:
    named = [(name, nn.Parameter(torch.empty(shape))) for name, shape in {"a": (10, 2), "b": (4, 3)}.items()]
    return plan(named, bucket_mb, {name: Frames(codec) if codec else EXACT for name, _ in named})


def contribute(errors: ErrorFeedback, layout: list[BucketPlan], gradient: float) -> list[float]:
    """Every value of every parameter is so much; the first value of each bucket's frame."""
    sent = []
    for one in layout:
        codec = errors.of(one).codec
        [whole] = cut(one, codec, one.head, one.shape.numel, 1)
        [section] = whole
        frame = torch.empty(section.frame_bytes, dtype=torch.uint8)
        values = torch.full((section.end - section.start,), gradient)
        assert errors.of(one).contribute(section, values, frame) is Encoded.WHOLE
        codec.decode(frame, values.view(1, -1))
        sent.append(values[0].item())
    return sent


def residual(errors: ErrorFeedback, name: str) -> float:
    """The residual of its values, which are all the same; nothing is kept of what is paid."""
    return float(errors.state().get(name, {}).get("residual", torch.zeros(1)).unique())


def test_what_a_frame_left_out_is_sent_when_it_has_grown():
    layout = plans(Whole())
    errors = ErrorFeedback(layout)
    assert [contribute(errors, layout, 0.75) for _ in range(4)] == [[0.0], [1.0], [1.0], [1.0]]
    assert residual(errors, "a") == residual(errors, "b") == 0.0


def test_without_feedback_there_is_no_residual():
    layout = plans(Whole(feedback=False))
    errors = ErrorFeedback(layout)
    assert [contribute(errors, layout, 0.75) for _ in range(2)] == [[0.0], [0.0]]
    assert "residual" not in errors.state()["b"]


def test_debts_follow_the_parameter_into_other_buckets_and_those_of_several_ranks_add_up():
    layout = plans(Whole())
    states = []
    for gradient in (0.25, 0.5):
        errors = ErrorFeedback(layout)
        contribute(errors, layout, gradient)
        states.append(errors.state())
    apart = plans(Whole(), bucket_mb=1e-5)
    assert len(apart) == 2
    errors = ErrorFeedback(apart)
    errors.restore(states)
    assert residual(errors, "a") == residual(errors, "b") == 0.75
    assert contribute(errors, apart, 0.5) == [1.0, 1.0]
    assert residual(errors, "a") == 0.25


@pytest.mark.parametrize("meanwhile", [None, Whole(feedback=False)], ids=["exact", "without feedback"])
def test_debts_to_parameters_that_are_not_encoded_are_kept_until_they_are_again(meanwhile):
    layout = plans(Whole())
    errors = ErrorFeedback(layout)
    contribute(errors, layout, 0.75)
    between = ErrorFeedback(plans(meanwhile))
    between.restore([errors.state(), errors.state()])
    again = ErrorFeedback(layout)
    again.restore([between.state()])
    assert residual(again, "a") == residual(again, "b") == 1.5


def test_a_codec_goes_on_from_the_first_state_where_the_section_is_the_same():
    def frames(errors: ErrorFeedback) -> list[float]:
        kept = [kinds[kind] for kinds in errors.state().values() for kind in kinds if kind.startswith("Whole")]
        return [memory.item() for memory in kept]

    layout = plans(Whole())
    first, second = ErrorFeedback(layout), ErrorFeedback(layout)
    for errors, steps in ((first, 3), (second, 1)):
        for _ in range(steps):
            contribute(errors, layout, 0.5)
    again = ErrorFeedback(layout)
    again.restore([first.state(), second.state()])
    contribute(again, layout, 0.5)
    assert frames(again) == [4.0]
    apart = plans(Whole(), bucket_mb=1e-5)
    elsewhere = ErrorFeedback(apart)
    elsewhere.restore([first.state()])
    contribute(elsewhere, apart, 0.5)
    assert sorted(frames(elsewhere)) == [1.0, 1.0, 3.0]


def test_momentum_gathers_while_a_value_waits_and_ends_when_it_is_sent():
    layout = plans(Whole(momentum=0.5))
    errors = ErrorFeedback(layout)
    assert contribute(errors, layout, 0.5) == [0.0]
    assert float(errors.state()["a"]["velocity"].unique()) == 0.5
    assert contribute(errors, layout, 0.5) == [1.0]  # 0.5 + (0.5 + 0.5 * 0.5)
    assert residual(errors, "a") == 0.25
    assert "velocity" not in errors.state()["a"]


def test_a_state_does_not_change_with_what_it_was_taken_from():
    layout = plans(Whole())
    errors = ErrorFeedback(layout)
    contribute(errors, layout, 0.25)
    state = errors.state()
    contribute(errors, layout, 0.25)
    assert float(state["a"]["residual"].unique()) == 0.25


def test_a_parameter_alone_goes_on_in_the_memory_that_was_given():
    apart = plans(Whole(), bucket_mb=1e-5)
    errors = ErrorFeedback(apart)
    given = {"a": {"residual": torch.full((20,), 0.75)}}
    errors.restore([given])
    assert residual(errors, "a") == 0.75, "before anything is encoded"
    assert contribute(errors, apart, 0.5)[1] == 1.0
    kept = errors.state(copied=False)["a"]["residual"]
    assert kept.data_ptr() == given["a"]["residual"].data_ptr()
    assert residual(errors, "a") == 0.25
    errors.restore([])
    assert errors.state() == {}


def test_a_residual_decays_once_before_each_gradient():
    layout = plans(Whole(decay=0.5))
    errors = ErrorFeedback(layout)
    assert contribute(errors, layout, 0.75) == [0.0]
    assert contribute(errors, layout, 0.75) == [1.0]  # 0.75 + 0.5 * 0.75
    assert residual(errors, "a") == residual(errors, "b") == 0.125
