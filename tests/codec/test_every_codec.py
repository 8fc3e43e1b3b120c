"""Promises of each codec, by listing the room: a new file is tested the moment it exists."""

import dataclasses
import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from codec._values import KINDS, Bits, apart, decoded, encoded, memory_of, runs, shapes, values_of, without_numba
from volary.codec import ROOM
from volary.codec._base import Encoded, FrameCodec, Layer, Option
from volary.codec.kernels.batches import MatrixBatch

PAGE = Path(__file__).parents[2] / "docs" / "codecs.md"
ALL = {name: ROOM.load(name)() for name in ROOM.names()}
CODECS = {name: codec for name, codec in ALL.items() if isinstance(codec, FrameCodec)}
NARROW = "topk of 2 bits"  # not a default, and another frame
CODECS[NARROW] = replace(CODECS["topk"], bits=2)
FLAT = [name for name, codec in CODECS.items() if not codec.by_rows]
LOSSY = [name for name, codec in CODECS.items() if not codec.lossless]
MATRIX = Layer(("fc.weight", "fc.bias"), 4096 * 4097, 4096, 4096, encodable=True)
BIAS = Layer(("conv.bias",), 256, 256, 1, encodable=False)
KERNELS_MAY_COMPILE = settings(max_examples=20)

each_of_all = pytest.mark.parametrize("name", ALL)


def each_of(names):
    """Defaults are tried in each run of the tests."""
    return pytest.mark.parametrize(
        "name", [pytest.param(one, marks=[pytest.mark.slow] * (one == NARROW)) for one in names]
    )


each, each_flat, each_lossy = each_of(CODECS), each_of(FLAT), each_of(LOSSY)


@each_of_all
def test_codec_has_a_row_and_a_section_in_the_docs_that_names_its_settings(name):
    page = PAGE.read_text(encoding="utf-8")
    assert f"| [`{name}`](#{name}) |" in page
    section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    assert [field.name for field in dataclasses.fields(ALL[name]) if f"`{field.name}`" not in section] == []


@each_of_all
def test_codec_is_a_frozen_dataclass_of_settings(name):
    assert type(ALL[name]).__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(ALL[name]))


@each_of_all
def test_of_what_fits_a_layer_it_picks_one_and_says_why(name):
    codec = ALL[name]
    for layer in (MATRIX, replace(MATRIX, products=16.0, factor_values=8192), BIAS):
        fitting = [leaf for leaf in codec.leaves() if leaf.fits(layer)]
        options = [Option(leaf, leaf.name, 10.0 + place, 1e-3 * place) for place, leaf in enumerate(fitting)]
        if options:
            best, why = codec.pick(layer, options)
            assert best in options and why
    assert all(leaf.representation and leaf.at(0) is not None for leaf in codec.leaves())
    assert codec.of("any.weight") == codec and codec.chooses == (len(codec.leaves()) > 1)


def test_settings_and_their_checks_import_nothing_heavy():
    code = (
        "import sys; from volary.codec import ROOM\n"
        "for codec in [ROOM.load(name)() for name in ROOM.names()]: [one.at(0).name for one in codec.leaves()]\n"
        "ROOM.load('onebit')().frame_bytes(3, 5)\n"
        "print(sorted({'torch', 'numpy', 'numba'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout.strip() == "[]"


@each
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_every_byte_of_a_frame_is_written_and_none_beside_it(name, data):
    codec = CODECS[name]
    values = data.draw(runs(codec))
    before = Bits(values.clone())
    frame = encoded(codec, values, fill=0x00)
    assert torch.equal(frame, encoded(codec, values, fill=0xFF))
    assert Bits(values.clone()) == before, "what is encoded stays as it is"
    assert frame.numel() % 4 == 0, "so that frames in a row stay aligned"
    assert torch.isfinite(decoded(codec, frame, values.shape)).all()


@each
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_adding_a_frame_is_adding_what_it_decodes_to(name, data):
    codec = CODECS[name]
    values = data.draw(runs(codec))
    frame = encoded(codec, values)
    once = decoded(codec, frame, values.shape)
    target = values_of("normal", values.shape, seed=1)
    for sign in (1, -1):
        expected = target + sign * once
        for out in (target.clone(), apart(target)):
            codec.add(frame, out, sign)
            assert torch.equal(out, expected)
    for out in (torch.full(values.shape, 3.0), apart(target)):
        codec.decode(frame, out)
        assert torch.equal(out, once)


@each
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_kernels_and_torch_operations_give_the_same(name, data):
    codec = CODECS[name]
    values = data.draw(runs(codec))
    frame = encoded(codec, values)
    once = decoded(codec, frame, values.shape)
    summed = once.clone()
    codec.add(frame, summed, -1)
    with without_numba():
        assert Bits(decoded(codec, frame, values.shape)) == Bits(once)
        assert torch.equal(once - decoded(codec, frame, values.shape), summed)
        other = decoded(codec, encoded(codec, values), values.shape)
    most = values.abs().max().item() if values.numel() else 0.0
    torch.testing.assert_close(other, once, rtol=1e-4, atol=1e-5 * most)


@each
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("shape", [(1, 1), (1, 70_001), (40, 300)], ids=str)
def test_on_a_gpu_it_gives_what_it_gives_on_a_cpu(name, shape):
    codec, gpu = CODECS[name], torch.device("cuda")
    if not codec.by_rows:
        shape = (1, shape[0] * shape[1])
    values, memories = values_of("normal", shape, seed=1), [torch.zeros(codec.memory_values(*shape)) for _ in range(2)]
    memories[1] = memories[1].to(gpu)
    left = [torch.zeros(shape), torch.zeros(shape, device=gpu)]
    for _ in range(3):
        found = []
        for residual, memory in zip(left, memories, strict=True):
            frame = torch.zeros(codec.frame_bytes(*shape), dtype=torch.uint8, device=memory.device)
            own = values.to(memory.device)
            assert codec.encode_with_feedback(own, residual, frame, memory) is Encoded.WHOLE
            out = torch.ones_like(own)
            codec.add(frame, out)
            found.append(out.cpu())
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(left[1].cpu(), left[0], rtol=1e-4, atol=1e-4)


@each_flat
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_a_frame_is_the_frames_of_its_blocks_in_order(name, data):
    codec = CODECS[name]
    values = data.draw(runs(codec))
    frame = encoded(codec, values)
    parts = [encoded(codec, part) for part in values.split(max(1, codec.block), dim=1) if part.numel()]
    assert torch.equal(frame, torch.cat([torch.empty(0, dtype=torch.uint8), *parts]))
    sizes = [
        codec.frame_bytes(1, min(codec.block, values.numel() - at)) for at in range(0, values.numel(), codec.block)
    ]
    assert codec.frame_bytes(*values.shape) == sum(sizes)


@each_lossy
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_values_that_are_not_finite_are_told(name, bad, data):
    codec = CODECS[name]
    values = data.draw(runs(codec).filter(torch.Tensor.numel))
    row, column = (data.draw(some.integers(0, size - 1)) for size in values.shape)
    values[row, column] = bad
    frame = torch.empty(codec.frame_bytes(*values.shape), dtype=torch.uint8)
    assert not codec.encode(values, frame, memory_of(codec, values))
    with without_numba():
        assert not codec.encode(values, frame, memory_of(codec, values))


@each
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_nothing_is_lost_what_was_decoded_and_what_is_left_is_what_came(name, data):
    codec = CODECS[name]
    shape = data.draw(runs(codec)).shape
    left, came, sent = torch.zeros(shape), torch.zeros(shape, dtype=torch.float64), torch.zeros(shape)
    memory = torch.zeros(codec.memory_values(*shape))
    frame = torch.empty(codec.frame_bytes(*shape), dtype=torch.uint8)
    for step in range(4):
        gradient = values_of("normal", shape, seed=step)
        assert codec.encode_with_feedback(gradient, left, frame, memory) is Encoded.WHOLE
        codec.add(frame, sent)
        came += gradient
    torch.testing.assert_close((sent + left).double(), came, rtol=1e-4, atol=1e-4)


@each
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_a_frame_with_feedback_is_that_of_the_sum_and_what_it_leaves_out_stays(name, data):
    codec = CODECS[name]
    shape = data.draw(shapes(codec))
    values, before = values_of("normal", shape, seed=1), values_of("normal", shape, seed=2)
    frame = torch.empty(codec.frame_bytes(*shape), dtype=torch.uint8)
    for residual in (before.clone(), apart(before)):
        assert codec.encode_with_feedback(values, residual, frame, memory_of(codec, values)) is Encoded.WHOLE
        sent = decoded(codec, frame, shape)
        expected = decoded(codec, encoded(codec, before + values), shape)
        torch.testing.assert_close(sent, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(residual, before + values - sent, rtol=1e-4, atol=1e-4)


@each
@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_count_as_zero_with_feedback_and_the_residual_loses_nothing(name, spoilt):
    codec = CODECS[name]
    shape = (24, 150) if codec.by_rows else (1, 3600)
    values, before = values_of("normal", shape, seed=1), values_of("normal", shape, seed=2)
    values[0, 7] = spoilt
    frame, residual, kept = torch.empty(codec.frame_bytes(*shape), dtype=torch.uint8), before.clone(), values.clone()
    assert codec.encode_with_feedback(values, residual, frame, memory_of(codec, values)) is Encoded.LEFT_OUT
    assert torch.equal(values.nan_to_num(), kept.nan_to_num()), "whose fault it was can still be seen"
    found = decoded(codec, frame, shape) + residual
    alone, both = ((found - expected).abs() < 1e-4 for expected in (before, before + values))
    assert (alone | both).all() and alone[0, 7]


@each
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_matrices_that_are_encoded_together_are_what_each_is_alone(name, data):
    codec = CODECS[name]
    drawn = data.draw(
        some.lists(some.tuples(shapes(codec), some.sampled_from([*KINDS, "spoilt"])), min_size=1, max_size=4)
    )
    batch = MatrixBatch(codec, [shape for shape, _ in drawn])
    values = torch.cat([_drawn(kind, shape, seed) for seed, (shape, kind) in enumerate(drawn)])
    residual = values_of("normal", (1, batch.size), seed=9).view(-1)
    alone, memory = residual.clone(), torch.zeros(batch.memory_values)
    frames, apart_frames = (torch.zeros(batch.frame_bytes, dtype=torch.uint8) for _ in range(2))
    each = batch.matrices(values), batch.matrices(alone), batch.frames(apart_frames), batch.memories(memory.clone())
    found = [codec.encode_with_feedback(*one) for one in zip(*each, strict=True)]
    assert codec.encode_each(batch, values, residual, frames, memory) is max(found, key=lambda one: one.value)
    if Encoded.TOO_LARGE in found:
        return
    assert torch.equal(frames, apart_frames)
    assert Bits(residual) == Bits(alone)
    sums, expected = (torch.ones(batch.size) for _ in range(2))
    for change, each_change in ((codec.add_each, codec.add), (codec.decode_each, codec.decode)):
        change(batch, frames, sums)
        for frame, matrix in zip(batch.frames(frames), batch.matrices(expected), strict=True):
            each_change(frame, matrix)
        assert Bits(sums) == Bits(expected)


def _drawn(kind, shape, seed):
    """Values of a kind, flat; of one that is spoilt the first is NaN."""
    values = values_of("normal" if kind == "spoilt" else kind, shape, seed).view(-1)
    values[: kind == "spoilt"] = torch.nan
    return values


@each
def test_what_it_remembers_makes_the_next_frame_and_nothing_else_does(name):
    codec = CODECS[name]
    values = values_of("normal", (24, 50) if codec.by_rows else (1, 1200), seed=0)
    state = torch.random.get_rng_state()
    first, second = memory_of(codec, values), memory_of(codec, values)
    for _ in range(3):
        frame = encoded(codec, values, first)
        assert torch.equal(encoded(codec, values, second), frame)
        assert Bits(first) == Bits(second)
    assert torch.equal(torch.random.get_rng_state(), state)


def digests(rank, world_size):
    """Digests of three frames of each codec."""
    return [_digest(name) for name in CODECS]


def _digest(name):
    codec = CODECS[name]
    values = values_of("normal", (30, 100) if codec.by_rows else (1, 3000), seed=0)
    memory, found = memory_of(codec, values), hashlib.sha256()
    for _ in range(3):
        found.update(encoded(codec, values, memory).numpy().tobytes())
    return found.hexdigest()


def test_frames_are_the_same_in_every_process_and_thread(workers):
    here = digests(0, 1)
    with ThreadPoolExecutor(max_workers=4) as threads:
        assert list(threads.map(_digest, list(CODECS) * 3)) == here * 3
    assert workers(2, digests) == [here, here]


@each
@KERNELS_MAY_COMPILE
@given(data=some.data())
def test_bytes_that_no_codec_wrote_never_lead_beside_the_values(name, data):
    codec = CODECS[name]
    shape = data.draw(runs(codec)).shape
    seed = data.draw(some.integers(0, 999))
    frame = torch.randint(256, (codec.frame_bytes(*shape),), generator=torch.Generator().manual_seed(seed))
    decoded(codec, frame.to(torch.uint8), shape)
