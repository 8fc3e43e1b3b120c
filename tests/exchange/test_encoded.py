"""The lossy all-reduce: what all ranks agree on, what it costs on the wire, and that nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from _workers import joined
from exchange._lossy import SHAPES, Lossy, Seen, assert_equal, codec, contributed
from volary.codec import ROOM
from volary.codec._base import FrameCodec
from volary.comm.memory import futex
from volary.comm.topology.topology import Topology
from volary.errors import NotFinite
from volary.exchange.choice.bucketing import plan
from volary.exchange.compression.encoded_sums import EncodedSums
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.compression.residual import ResidualState
from volary.exchange.representations.frames import Frames

needs_futex = pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())
NAMES = [name for name in ROOM.names() if issubclass(ROOM.load(name), FrameCodec)]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Loops are compiled once, and kept on disk: not by all workers at a time, each for itself."""
    for name in NAMES:
        used, rows = codec(name), 30 if codec(name).by_rows else 1
        values = torch.randn(rows, 1200 // rows)
        frame = torch.empty(used.frame_bytes(*values.shape), dtype=torch.uint8)
        assert used.encode(values, frame, torch.zeros(used.memory_values(*values.shape)))
        used.decode(frame, values)
        used.add(frame, values, -1)


def three_steps(rank: int, world_size: int, name: str, topology: Topology | None, attempt_id: int) -> Seen:
    """All is conserved, and a restart after the first step does not show."""
    whole = Lossy(rank, world_size, codec(name), attempt_id, topology=topology)
    whole.step(0)
    (traffic,) = whole.sums.traffic
    assert traffic.codec == name
    counted = traffic.sent_bytes, traffic.received_bytes
    restarted = Lossy(rank, world_size, codec(name), attempt_id + 1, topology=topology, states=[whole.errors.state()])
    restarted.follow(whole)
    for step in (1, 2):
        whole.step(step)
        restarted.step(step)
    assert restarted.digest == whole.digest, f"{name}: a restart shows"
    if name == "none":
        assert_equal(whole.agreed, contributed(range(world_size), range(3)), atol=1e-5)
    if codec(name).feedback:
        assert_equal(whole.accounted(), contributed(range(world_size), range(3)))
    return Seen(whole.digest, whole.agreed, whole.errors.state(), counted, traffic.plain_bytes)


def with_each(rank: int, world_size: int, names: Sequence[str], topology: Topology | None) -> dict[str, Seen]:
    """By codec."""
    return {name: three_steps(rank, world_size, name, topology, 2 * place) for place, name in enumerate(names)}


def assert_alike(everybody: Sequence[dict[str, Seen]]) -> None:
    digests = [{name: seen.digest for name, seen in found.items()} for found in everybody]
    assert all(found == digests[0] for found in digests)


@pytest.mark.parametrize("n", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_all_agree_bit_for_bit_nothing_is_lost_no_restart_shows_and_no_more_travels_than_frames(workers, n):
    everybody = workers(n, with_each, NAMES, None)
    assert_alike(everybody)
    values = sum(torch.empty(shape).numel() for shape in SHAPES.values())
    for name in NAMES:
        plain = sum(one[name].plain_bytes for one in everybody)
        assert plain == pytest.approx(4 * (n - 1) * 4 * values, rel=0.05), "as an all-reduce of 32-bit values"
        if not codec(name).by_rows:
            sent, received = (sum(one[name].counted[way] for one in everybody) for way in range(2))
            assert sent == received == pytest.approx(2 * (n - 1) * codec(name).frame_bytes(1, values), rel=0.05), name


def sum_beside(rank: int, world_size: int) -> tuple[list[float], list[str]]:
    """The sum of a small parameter that lies beside encoded ones, and whose residuals there are."""
    named = [(name, nn.Parameter(torch.empty(shape))) for name, shape in {**SHAPES, "bias": (30,)}.items()]
    plans = plan(named, 25, {name: Frames(codec("onebit")) for name in SHAPES}, beside=True)
    [one], errors = plans, ErrorFeedback(plans)
    sums = EncodedSums(joined(), plans, None, errors)
    head, own = one.pieces(sums.memory[0].contribution)
    head.fill_(1)
    for piece in own:
        piece.copy_(torch.arange(piece.numel()) + rank / 4)
    sums.sum_up(0, 0, one.shape.numel).wait()
    return one.pieces(sums.memory[0].agreed)[1][-1].tolist(), list(errors.state())


def test_small_parameters_beside_encoded_ones_are_summed_as_they_are(workers):
    expected = [3 * value + 0.75 for value in range(30)]
    for values, residuals in workers(3, sum_beside):
        assert values == expected
        assert set(residuals) == set(SHAPES)


def go_on(rank: int, world_size: int, name: str, states: Sequence[Sequence[ResidualState]], topology: Topology):
    """From the residuals of others, in other buckets."""
    taken = Lossy(rank, world_size, codec(name), 0, bucket_mb=0.25, topology=topology, states=states[rank])
    for step in range(2):
        taken.step(step)
    return taken.accounted()


@pytest.mark.slow  # three groups; one node is tested always
@needs_futex
def test_so_it_is_between_nodes_and_fewer_ranks_in_another_layout_send_the_residuals(workers):
    everybody = workers(4, with_each, ["none", "onebit", "powersgd", "topk"], Topology.of([0, 1], [2, 3]))
    assert_alike(everybody)
    before = [one["topk"] for one in everybody]
    states = [[before[0].state, before[1].state], [before[2].state], [before[3].state]]
    after = workers(3, go_on, "topk", states, Topology.of([0, 2], [1]))[0]
    first, second = contributed(range(4), range(3)), contributed(range(3), range(2))
    found = {parameter: before[0].agreed[parameter] + after[parameter] for parameter in SHAPES}
    assert_equal(found, {parameter: first[parameter] + second[parameter] for parameter in SHAPES})


def spoil(rank: int, world_size: int, left_out: bool) -> list[str]:
    told: list[str] = []
    taken = Lossy(rank, world_size, codec("onebit"), 0, left_out=told.append if left_out else None)
    for step in range(3):
        taken.step(step, spoilt="wide" if rank == step == 1 else "")
    expected = contributed(range(world_size), range(3))
    expected["wide"] = contributed([0], [1])["wide"] + contributed([0, 1], [0, 2])["wide"]
    assert_equal(taken.accounted(), expected)
    return told


def test_values_that_are_not_finite_end_the_run_naming_parameter_and_rank(workers):
    with pytest.raises(NotFinite, match="gradient of wide on rank 1 is NaN or infinite"):
        workers(2, spoil, False)


def test_or_count_as_zero_are_told_once_and_all_else_is_conserved(workers):
    first, second = workers(2, spoil, True)
    assert first == []
    assert len(second) == 1
    assert "gradient of wide on rank 1" in second[0]
