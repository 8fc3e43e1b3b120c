"""Layers against formulas of their own, over random settings: where importers of Caffe's networks go wrong."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from network.caffe._nets import caffemodel, computed, input_layer
from volary.errors import SettingError

FEW = settings(max_examples=40)
sides = st.integers(3, 9)


def draw_image(data, channels=2):
    height, width = data.draw(sides), data.draw(sides)
    seed = data.draw(st.integers(0, 2**16))
    return np.random.default_rng(seed).standard_normal((2, channels, height, width)).astype(np.float32)


def layer(kind, settings="", *, bottom="data", top="out", name="l"):
    bottoms = " ".join(f'bottom: "{one}"' for one in bottom.split())
    return f'layer {{ name: "{name}" type: "{kind}" {bottoms} top: "{top}" {settings} }}\n'


def windows(side, kernel, stride, pad):
    """(start, end, end in the padded image) of each of Caffe's windows; starts and ends within the image."""
    count = math.ceil((side + 2 * pad - kernel) / stride) + 1
    if pad and (count - 1) * stride >= side + pad:
        count -= 1
    found = []
    for number in range(count):
        start = number * stride - pad
        end = min(start + kernel, side + pad)
        found.append((max(start, 0), min(end, side), end - start))
    return found


def pooled(image, kernel, stride, pad, method):
    rows, columns = (windows(side, kernel, stride, pad) for side in image.shape[2:])
    found = np.zeros((*image.shape[:2], len(rows), len(columns)), dtype=np.float32)
    for y, (top, bottom, high) in enumerate(rows):
        for x, (left, right, wide) in enumerate(columns):
            part = image[:, :, top:bottom, left:right]
            found[:, :, y, x] = part.max((2, 3)) if method == "MAX" else part.sum((2, 3)) / (high * wide)
    return found


@FEW
@given(st.data())
def test_pooling_rounds_up_and_an_average_divides_by_what_is_in_the_padded_image(data):
    image, method = draw_image(data), data.draw(st.sampled_from(["MAX", "AVE"]))
    kernel = data.draw(st.integers(1, 3))
    stride, pad = data.draw(st.integers(1, kernel)), data.draw(st.integers(0, kernel // 2))
    text = f"pooling_param {{ pool: {method} kernel_size: {kernel} stride: {stride} pad: {pad} }}"
    found = computed(input_layer(image.shape) + layer("Pooling", text), image)
    np.testing.assert_allclose(found, pooled(image, kernel, stride, pad, method), rtol=1e-5, atol=1e-6)


def test_pooling_rounds_down_if_either_field_says_so_and_refuses_a_window_without_values():
    image = np.random.default_rng(0).standard_normal((1, 1, 6, 6)).astype(np.float32)
    for field in ("round_mode: FLOOR", "ceil_mode: false"):
        text = layer("Pooling", f"pooling_param {{ kernel_size: 3 stride: 2 {field} }}")
        assert computed(input_layer(image.shape) + text, image).shape == (1, 1, 2, 2)
    with pytest.raises(SettingError, match=r"net.prototxt:2: layer 'l': has a last window that begins at 6, outside"):
        computed(input_layer(image.shape) + layer("Pooling", "pooling_param { kernel_size: 1 stride: 2 }"), image)


def test_global_pooling_and_the_default_stride_of_1():
    image = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    everything = computed(
        input_layer(image.shape) + layer("Pooling", "pooling_param { pool: AVE global_pooling: true }"), image
    )
    np.testing.assert_allclose(everything[:, :, 0, 0], image.mean((2, 3)), rtol=1e-5, atol=1e-6)
    assert computed(input_layer(image.shape) + layer("Pooling", "pooling_param { kernel_size: 2 }"), image).shape == (
        2,
        3,
        3,
        4,
    )


@FEW
@given(st.data())
def test_lrn_across_channels_divides_alpha_by_the_size(data):
    image, size = draw_image(data, channels=6), data.draw(st.sampled_from([1, 3, 5]))
    alpha, beta, k = data.draw(st.floats(0.1, 5)), data.draw(st.floats(0.3, 1)), data.draw(st.floats(0.5, 2))
    text = f"lrn_param {{ local_size: {size} alpha: {alpha!r} beta: {beta!r} k: {k!r} }}"
    padded = np.pad(image**2, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    near = sum(padded[:, one : one + image.shape[1]] for one in range(size))
    expected = image / (k + alpha / size * near) ** beta
    np.testing.assert_allclose(
        computed(input_layer(image.shape) + layer("LRN", text), image), expected, rtol=1e-4, atol=1e-6
    )


@FEW
@given(st.data())
def test_lrn_within_channels_averages_with_zeros_beyond_the_edges_and_adds_1(data):
    image, size = draw_image(data), data.draw(st.sampled_from([1, 3]))
    text = f"lrn_param {{ local_size: {size} alpha: 2 beta: 0.5 k: 9 norm_region: WITHIN_CHANNEL }}"
    padded = np.pad(image**2, ((0, 0), (0, 0), (size // 2,) * 2, (size // 2,) * 2))
    height, width = image.shape[2:]
    near = sum(padded[:, :, y : y + height, x : x + width] for y in range(size) for x in range(size)) / size**2
    found = computed(input_layer(image.shape) + layer("LRN", text), image)
    np.testing.assert_allclose(found, image / (1 + 2 * near) ** 0.5, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("factor", "share"), [(3.5, 1 / 3.5), (1.0, 1.0), (0.0, 0.0)])
def test_batch_norm_divides_its_sums_by_the_third_blob_and_a_scale_layer_follows(tmp_path, factor, share):
    image = np.random.default_rng(1).standard_normal((4, 2, 3, 3)).astype(np.float32)
    mean, variance = np.array([0.5, -2], dtype=np.float32), np.array([1, 3], dtype=np.float32)
    gamma, beta = np.array([2, 3], dtype=np.float32), np.array([0.1, 0.2], dtype=np.float32)
    file = caffemodel(tmp_path / "w", {"bn": [mean, variance, np.array([factor])], "sc": [gamma, beta]})
    text = layer("BatchNorm", "batch_norm_param { eps: 0.001 }", name="bn") + layer(
        "Scale", "scale_param { bias_term: true }", bottom="out", top="out", name="sc"
    )
    every = (1, 2, 1, 1)
    normal = (image - (mean * share).reshape(every)) / np.sqrt((variance * share).reshape(every) + 0.001)
    expected = normal * gamma.reshape(every) + beta.reshape(every)
    np.testing.assert_allclose(
        computed(input_layer(image.shape) + text, image, weights=file), expected, rtol=1e-4, atol=1e-5
    )


def test_batch_norm_goes_by_the_batch_in_training_unless_the_file_says_otherwise(tmp_path):
    image = np.random.default_rng(1).standard_normal((8, 2, 3, 3)).astype(np.float32) * 3 + 1
    file = caffemodel(tmp_path / "w", {"bn": [np.zeros(2), np.ones(2), np.ones(1)]})
    for said, centred in (("", True), ("batch_norm_param { use_global_stats: true }", False)):
        text = input_layer(image.shape) + layer("BatchNorm", said, name="bn")
        found = computed(text, image, weights=file, train=True)
        assert (abs(found.mean((0, 2, 3))).max() < 1e-5) == centred


@FEW
@given(st.data())
def test_scale_multiplies_from_its_axis_on_or_by_a_second_blob(tmp_path_factory, data):
    image, axis = draw_image(data, channels=3), data.draw(st.sampled_from([1, 2, 3, -1]))
    axis = axis if axis > 0 else 4 + axis
    axes = data.draw(st.integers(1, 4 - axis))
    factors = np.random.default_rng(2).standard_normal(image.shape[axis : axis + axes]).astype(np.float32)
    spread = factors.reshape(*factors.shape, *(1,) * (4 - axis - axes))
    file = caffemodel(tmp_path_factory.mktemp("w") / "w", {"l": [factors]})
    text = input_layer(image.shape) + layer("Scale", f"scale_param {{ axis: {axis} num_axes: {axes} }}")
    np.testing.assert_allclose(computed(text, image, weights=file), image * spread, rtol=1e-5)
    two = input_layer(image.shape, image.shape[:2]) + layer("Scale", "scale_param { axis: 0 }", bottom="data other")
    other = image.mean((2, 3))
    np.testing.assert_allclose(computed(two, image, other), image * other[:, :, None, None], rtol=1e-5)


def convolved(image, weight, stride, pad, dilation, groups):
    """A convolution, value by value: the weight is (out, in / groups, kernel, kernel)."""
    padded = np.pad(image, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    outputs, inputs, kernel, _ = weight.shape
    reach = dilation * (kernel - 1) + 1
    height, width = ((side - reach) // stride + 1 for side in padded.shape[2:])
    found = np.zeros((len(image), outputs, height, width), dtype=np.float32)
    for out in range(outputs):
        first = out // (outputs // groups) * inputs
        for y in range(height):
            for x in range(width):
                top, left = y * stride, x * stride
                part = padded[:, first : first + inputs, top : top + reach : dilation, left : left + reach : dilation]
                found[:, out, y, x] = (part * weight[out]).sum((1, 2, 3))
    return found


@settings(max_examples=25)
@given(st.data())
def test_convolution_in_groups_with_stride_padding_and_dilation(tmp_path_factory, data):
    groups, kernel = data.draw(st.sampled_from([1, 2])), data.draw(st.integers(1, 3))
    stride, pad, dilation = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 2)), data.draw(st.integers(1, 2))
    image = draw_image(data, channels=4)
    assume(min(image.shape[2:]) + 2 * pad >= dilation * (kernel - 1) + 1)
    weight = np.random.default_rng(3).standard_normal((6, 4 // groups, kernel, kernel)).astype(np.float32)
    file = caffemodel(tmp_path_factory.mktemp("w") / "w", {"l": [weight]})
    text = (
        f"convolution_param {{ num_output: 6 kernel_size: {kernel} stride: {stride} pad: {pad} dilation: {dilation} "
        f"group: {groups} bias_term: false }}"
    )
    found = computed(input_layer(image.shape) + layer("Convolution", text), image, weights=file)
    np.testing.assert_allclose(found, convolved(image, weight, stride, pad, dilation, groups), rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(st.data())
def test_deconvolution_adds_what_each_value_spreads(tmp_path_factory, data):
    groups, kernel, stride = (
        data.draw(st.sampled_from([1, 2])),
        data.draw(st.integers(2, 4)),
        data.draw(st.integers(1, 2)),
    )
    pad, image = data.draw(st.integers(0, 1)), draw_image(data, channels=4)
    weight = np.random.default_rng(3).standard_normal((4, 6 // groups, kernel, kernel)).astype(np.float32)
    bias = np.arange(6, dtype=np.float32)
    file = caffemodel(tmp_path_factory.mktemp("w") / "w", {"l": [weight, bias]})
    height, width = (stride * (side - 1) + kernel for side in image.shape[2:])
    whole = np.zeros((len(image), 6, height, width), dtype=np.float32)
    for channel in range(4):
        first = channel // (4 // groups) * (6 // groups)
        for y in range(image.shape[2]):
            for x in range(image.shape[3]):
                part = whole[
                    :, first : first + 6 // groups, y * stride : y * stride + kernel, x * stride : x * stride + kernel
                ]
                part += image[:, channel, y, x][:, None, None, None] * weight[channel]
    expected = whole[:, :, pad : height - pad, pad : width - pad] + bias[:, None, None]
    text = f"convolution_param {{ num_output: 6 kernel_size: {kernel} stride: {stride} pad: {pad} group: {groups} }}"
    found = computed(input_layer(image.shape) + layer("Deconvolution", text), image, weights=file)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_sizes_of_windows_may_be_given_for_each_axis_in_both_ways():
    image = np.zeros((1, 1, 8, 9), dtype=np.float32)
    for sizes in ("kernel_size: 3 kernel_size: 5 stride: [2, 1]", "kernel_h: 3 kernel_w: 5 stride_h: 2 stride_w: 1"):
        text = layer("Convolution", f"convolution_param {{ num_output: 2 {sizes} }}")
        assert computed(input_layer(image.shape) + text, image).shape == (1, 2, 3, 5)


def test_inner_product_flattens_channels_first_and_may_be_transposed(tmp_path):
    image = np.random.default_rng(4).standard_normal((2, 3, 2, 2)).astype(np.float32)
    weight = np.random.default_rng(5).standard_normal((5, 12)).astype(np.float32)
    for transpose, stored in (("", weight), ("transpose: true", weight.T)):
        file = caffemodel(tmp_path / "w", {"l": [stored, np.ones(5)]})
        text = layer("InnerProduct", f"inner_product_param {{ num_output: 5 {transpose} }}")
        found = computed(input_layer(image.shape) + text, image, weights=file)
        np.testing.assert_allclose(found, image.reshape(2, 12) @ weight.T + 1, rtol=1e-4, atol=1e-5)


def test_layers_in_place_make_a_new_version_of_the_blob_that_they_are_named_after(tmp_path):
    image = np.random.default_rng(6).standard_normal((2, 3)).astype(np.float32)
    file = caffemodel(tmp_path / "w", {"ip1": [np.eye(3), np.zeros(3)], "ip2": [np.eye(3), np.zeros(3)]})
    product = "inner_product_param { num_output: 3 }"
    text = (
        input_layer(image.shape)
        + layer("InnerProduct", product, top="ip1", name="ip1")
        + layer("Eltwise", "", bottom="ip1 data", top="before", name="sum")
        + layer("ReLU", "", bottom="ip1", top="ip1", name="relu1")
        + layer("InnerProduct", product, bottom="ip1", top="ip2", name="ip2")
    )
    before, after = computed(text, image, weights=file)
    np.testing.assert_allclose(before, 2 * image, rtol=1e-5)
    np.testing.assert_allclose(after, np.maximum(image, 0), rtol=1e-5)


@FEW
@given(st.data())
def test_permute_reshape_slice_concat_and_crop_arrange_values_as_numpy_does(data):
    image = draw_image(data, channels=4)
    order = [0, *data.draw(st.permutations([1, 2, 3]))]
    found = computed(input_layer(image.shape) + layer("Permute", f"permute_param {{ order: {order} }}"), image)
    assert np.array_equal(found, image.transpose(order))
    axis, size = data.draw(st.sampled_from([(1, 4), (2, image.shape[2])])), image.shape
    text = "reshape_param { shape { dim: 0 dim: -1 dim: 2 } }"
    assert np.array_equal(computed(input_layer(size) + layer("Reshape", text), image), image.reshape(size[0], -1, 2))
    point = data.draw(st.integers(1, axis[1] - 1))
    cut = (
        f'layer {{ name: "s" type: "Slice" bottom: "data" top: "a" top: "b" slice_param {{ axis: {axis[0]} '
        f"slice_point: {point} }} }}\n"
    )
    first, second = computed(input_layer(size) + cut, image)
    assert np.array_equal(np.concatenate([first, second], axis[0]), image)
    joined = cut + layer("Concat", f"concat_param {{ axis: {axis[0]} }}", bottom="b a")
    assert np.array_equal(computed(input_layer(size) + joined, image), np.concatenate([second, first], axis[0]))
    offset = [data.draw(st.integers(0, side - 2)) for side in size[2:]]
    small = np.zeros((2, 4, 2, 2), dtype=np.float32)
    cropped = input_layer(size, small.shape) + layer(
        "Crop", f"crop_param {{ axis: 2 offset: {offset} }}", bottom="data other"
    )
    y, x = offset
    assert np.array_equal(computed(cropped, image, small), image[:, :, y : y + 2, x : x + 2])


def test_a_reshape_keeps_samples_apart_in_whatever_way_the_batch_is_written():
    image = np.random.default_rng(7).standard_normal((1, 4, 2, 3)).astype(np.float32)
    for dims in ([0, -1, 2], [1, -1, 2], [-1, 12, 2]):
        text = input_layer(image.shape) + layer("Reshape", f"reshape_param {{ shape {{ dim: {dims} }} }}")
        assert np.array_equal(computed(text, image), image.reshape(1, 12, 2))
    inner = layer("Reshape", "reshape_param { shape { dim: 2 dim: -1 } axis: 1 num_axes: 1 }")
    assert computed(input_layer(image.shape) + inner, image).shape == (1, 2, 2, 2, 3)
    with pytest.raises(SettingError, match="accepted: 0 first, which keeps the batch"):
        computed(input_layer(image.shape) + layer("Reshape", "reshape_param { shape { dim: [4, -1] } }"), image)


def mean(values, *axes):
    return values.mean(axes, keepdims=True)


def test_a_bias_is_added_from_its_axis_on_from_weights_or_from_a_second_blob(tmp_path):
    image = np.random.default_rng(9).standard_normal((2, 3, 4, 5)).astype(np.float32)
    added = np.random.default_rng(10).standard_normal((3, 4)).astype(np.float32)
    file = caffemodel(tmp_path / "w", {"l": [added]})
    text = input_layer(image.shape) + layer("Bias", "bias_param { num_axes: 2 }")
    np.testing.assert_allclose(computed(text, image, weights=file), image + added[:, :, None], rtol=1e-6)
    both = np.stack([added, 2 * added])
    text = input_layer(image.shape, both.shape) + layer("Bias", bottom="data other")
    np.testing.assert_allclose(computed(text, image, both), image + both[..., None], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        ("Reduction", "", "axis is 0, the batch; accepted: 1 and more"),
        ("Tile", "tile_param { axis: 0 tiles: 2 }", "axis is 0; accepted: 1 to 3"),
        ("Tile", "", "copies is 0; accepted: a whole number from 1"),
        ("Log", "log_param { base: 1 }", "base is 1; accepted: above 0 and other than 1"),
        ("Exp", "exp_param { base: 0 }", "base is 0; accepted: above 0"),
        ("Clip", "clip_param { min: 1 }", "max is missing; accepted: min and max"),
        ("ArgMax", "argmax_param { axis: 1 top_k: 4 }", "top is 4; accepted: up to 3, which are there"),
        ("ShuffleChannel", "shuffle_channel_param { group: 2 }", "groups is 2; accepted: what divides the 3 channels"),
        ("SPP", "spp_param { pyramid_height: 4 }", "levels is 4; accepted: up to 2 for 4x5 values"),
        ("SPP", "spp_param { pyramid_height: 1 pool: STOCHASTIC }", "pool is STOCHASTIC; accepted: MAX, AVE"),
    ],
)
def test_what_a_layer_cannot_be_is_one_sentence_with_line_and_layer(kind, settings, sentence):
    with pytest.raises(SettingError) as error:
        computed(input_layer((2, 3, 4, 5)) + layer(kind, settings), np.zeros((2, 3, 4, 5)))
    assert str(error.value).startswith(f"net.prototxt:2: layer 'l': {sentence}")


@pytest.mark.parametrize(
    ("kind", "settings", "formula"),
    [
        ("ReLU", "relu_param { negative_slope: 0.1 }", lambda x: np.where(x > 0, x, 0.1 * x)),
        ("ELU", "elu_param { alpha: 0.5 }", lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1))),
        ("Sigmoid", "", lambda x: 1 / (1 + np.exp(-x))),
        ("TanH", "", np.tanh),
        ("AbsVal", "", abs),
        ("BNLL", "", lambda x: np.log1p(np.exp(x))),
        ("Swish", "", lambda x: x / (1 + np.exp(-x))),
        ("Power", "power_param { power: 2 scale: 3 shift: 1 }", lambda x: (1 + 3 * x) ** 2),
        ("Exp", "", np.exp),
        ("Exp", "exp_param { base: 2 scale: 3 shift: 1 }", lambda x: 2 ** (1 + 3 * x)),
        ("Log", "log_param { scale: 0.1 shift: 9 }", lambda x: np.log(9 + 0.1 * x)),
        ("Log", "log_param { base: 10 shift: 9 }", lambda x: np.log10(9 + x)),
        ("Clip", "clip_param { min: -0.5 max: 0.25 }", lambda x: np.clip(x, -0.5, 0.25)),
        ("MVN", "", lambda x: (x - mean(x, 2, 3)) / (np.sqrt(mean((x - mean(x, 2, 3)) ** 2, 2, 3)) + 1e-9)),
        (
            "MVN",
            "mvn_param { across_channels: true eps: 0.5 }",
            lambda x: (x - mean(x, 1, 2, 3)) / (np.sqrt(mean((x - mean(x, 1, 2, 3)) ** 2, 1, 2, 3)) + 0.5),
        ),
        ("MVN", "mvn_param { normalize_variance: false }", lambda x: x - mean(x, 2, 3)),
        ("Tile", "tile_param { axis: 2 tiles: 3 }", lambda x: np.tile(x, (1, 1, 3, 1))),
        ("Reduction", "reduction_param { axis: 1 }", lambda x: x.sum((1, 2, 3))),
        ("Reduction", "reduction_param { axis: 2 operation: ASUM coeff: 3 }", lambda x: 3 * abs(x).sum((2, 3))),
        ("Reduction", "reduction_param { axis: -1 operation: SUMSQ }", lambda x: (x**2).sum(3)),
        ("Reduction", "reduction_param { axis: 1 operation: MEAN coeff: 2 }", lambda x: 2 * x.mean((1, 2, 3))),
        ("Bias", "bias_param { filler { value: 3 } }", lambda x: x + 3),
        ("Dropout", "dropout_param { dropout_ratio: 0.9 }", lambda x: x),
        ("Threshold", "threshold_param { threshold: 0.5 }", lambda x: (x > 0.5).astype(x.dtype)),
        ("ArgMax", "", lambda x: x.reshape(2, -1).argmax(1).reshape(2, 1, 1, 1)),
        ("ArgMax", "argmax_param { top_k: 3 out_max_val: true }", lambda x: largest(x, 3)),
        ("ArgMax", "argmax_param { axis: 1 }", lambda x: x.argmax(1, keepdims=True)),
        ("ArgMax", "argmax_param { axis: -1 out_max_val: true }", lambda x: x.max(3, keepdims=True)),
        ("ShuffleChannel", "shuffle_channel_param { group: 3 }", lambda x: x),
        ("Softmax", "softmax_param { axis: 2 }", lambda x: np.exp(x) / np.exp(x).sum(2, keepdims=True)),
        ("Flatten", "", lambda x: x.reshape(2, -1)),
        ("PReLU", "", lambda x: np.where(x > 0, x, 0.25 * x)),
    ],
)  # fmt: skip
def test_functions_of_values(kind, settings, formula):
    image = np.random.default_rng(8).standard_normal((2, 3, 4, 5)).astype(np.float32)
    found = computed(input_layer(image.shape) + layer(kind, settings), image)
    np.testing.assert_allclose(found, formula(image), rtol=1e-4, atol=1e-6)


def largest(x, count):
    """The places of the largest values of a sample, and the values."""
    flat = x.reshape(len(x), -1)
    places = np.argsort(-flat, 1)[:, :count]
    return np.stack([places, np.take_along_axis(flat, places, 1)], 1)[..., None]


def test_channels_of_groups_come_in_turns():
    image = np.random.default_rng(11).standard_normal((2, 6, 2)).astype(np.float32)
    found = computed(input_layer(image.shape) + layer("ShuffleChannel", "shuffle_channel_param { group: 2 }"), image)
    np.testing.assert_array_equal(found, image[:, [0, 3, 1, 4, 2, 5]])


@FEW
@given(st.data())
def test_a_pyramid_pools_into_finer_and_finer_grids(data):
    """Caffe's windows: as large as they must be, with the padding that is left over on both sides."""
    image, levels = draw_image(data), data.draw(st.integers(1, 2))
    for kind, take in (("MAX", np.max), ("AVE", np.mean)):
        expected = []
        for windows in (2**level for level in range(levels)):
            height, width = (-(-side // windows) for side in image.shape[2:])
            edges = [
                (one * windows - side + 1) // 2 for one, side in zip((height, width), image.shape[2:], strict=True)
            ]
            padding = ((0, 0), (0, 0), (edges[0],) * 2, (edges[1],) * 2)
            padded = np.pad(image, padding, constant_values=-np.inf if kind == "MAX" else 0)
            parts = [
                take(padded[:, :, y * height : (y + 1) * height, x * width : (x + 1) * width], (2, 3))
                for y in range(windows)
                for x in range(windows)
            ]
            expected.append(np.stack(parts, 2).reshape(len(image), -1))
        settings = f"spp_param {{ pyramid_height: {levels} pool: {kind} }}"
        found = computed(input_layer(image.shape) + layer("SPP", settings), image)
        np.testing.assert_allclose(found, np.concatenate(expected, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "formula"),
    [
        ("", lambda a, b: a + b),
        ("eltwise_param { coeff: 1 coeff: -1 }", lambda a, b: a - b),
        ("eltwise_param { operation: PROD }", lambda a, b: a * b),
        ("eltwise_param { operation: MAX }", np.maximum),
    ],
)
def test_eltwise_sums_by_default(settings, formula):
    one, other = (np.random.default_rng(seed).standard_normal((2, 3, 4)).astype(np.float32) for seed in (1, 2))
    text = input_layer(one.shape, other.shape) + layer("Eltwise", settings, bottom="data other")
    np.testing.assert_allclose(computed(text, one, other), formula(one, other), rtol=1e-5)
