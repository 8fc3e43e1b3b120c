"""Losses give means over samples; their totals add up over batches to what one large batch gives."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.errors import SettingError, TargetError
from volary.network import Loss, build_loss
from volary.network.losses import ROOM
from volary.network.losses.cross_entropy import CrossEntropy
from volary.network.losses.mse import MeanSquaredError
from volary.network.losses.weighted import LossTerm

DOCS = Path(__file__).parents[2] / "docs" / "networks.md"


def loss(name: str, **settings: Any) -> Any:
    return build_loss(ROOM.load(name)(**settings))


def scores(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def classes(*shape: int, below: int = 5) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(2))


NEEDED = {"weighted": {"parts": (LossTerm(loss=CrossEntropy()),)}}


@pytest.mark.parametrize("name", ROOM.names())
def test_every_loss_is_documented_and_a_criterion(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", DOCS.read_text(), re.MULTILINE), f"docs/networks.md has no row for {name}"
    settings = ROOM.load(name)(**NEEDED.get(name, {}))
    assert isinstance(settings, Loss)
    criterion = settings.build()
    assert criterion.metric in criterion.measured
    assert isinstance(criterion.higher_is_better, bool)
    assert criterion.figures(torch.zeros(len(criterion.measured), 2)) == {}


def test_cross_entropy_equals_torch_s() -> None:
    output, target = scores(6, 5), classes(6)
    assert torch.equal(loss("cross_entropy")(output, target), functional.cross_entropy(output, target))
    smoothed = functional.cross_entropy(output, target, label_smoothing=0.1)
    assert torch.equal(loss("cross_entropy", label_smoothing=0.1)(output, target), smoothed)


def test_cross_entropy_of_sequences_is_the_mean_over_positions() -> None:
    output, target = scores(3, 4, 5), classes(3, 4)
    expected = functional.cross_entropy(output.transpose(1, 2), target)
    torch.testing.assert_close(loss("cross_entropy")(output, target), expected)


def test_auxiliary_outputs_count_at_their_weight() -> None:
    criterion = loss("cross_entropy", auxiliary_weight=0.25)
    output, target = scores(6, 5), classes(6)
    assert criterion((output, output, output), target).item() == pytest.approx(1.5 * criterion(output, target).item())
    assert torch.equal(criterion.totals((output, -output), target), criterion.totals(output, target))


@pytest.mark.parametrize("shape", [(7, 5), (7, 3, 5)])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_totals_of_parts_add_up_to_the_figures_of_the_whole(shape: tuple[int, ...], smoothing: float) -> None:
    criterion = loss("cross_entropy", label_smoothing=smoothing)
    output, target = scores(*shape), classes(*shape[:-1])
    parts = [criterion.totals(output[part], target[part]) for part in (slice(0, 2), slice(2, 3), slice(3, 7))]
    figures = criterion.figures(sum(parts[1:], parts[0]))
    assert figures["loss"] == pytest.approx(criterion(output, target).item())
    assert figures["accuracy"] == pytest.approx((output.argmax(-1) == target).float().mean().item())
    assert ("perplexity" in figures) == (len(shape) == 3)


def test_perplexity_is_e_to_the_loss_without_smoothing() -> None:
    output, target = scores(2, 3, 5), classes(2, 3)
    criterion = loss("cross_entropy", label_smoothing=0.5, metric="perplexity")
    expected = math.exp(loss("cross_entropy")(output, target).item())
    assert criterion.figures(criterion.totals(output, target))["perplexity"] == pytest.approx(expected)
    assert not criterion.higher_is_better
    assert loss("cross_entropy").higher_is_better


def test_the_metric_is_always_among_the_figures() -> None:
    for metric in ("accuracy", "perplexity", "loss"):
        criterion = loss("cross_entropy", metric=metric)
        assert metric in criterion.figures(criterion.totals(scores(4, 5), classes(4)))


def test_a_hopeless_perplexity_is_a_large_number() -> None:
    output = torch.tensor([[[0.0, 1e6]]])
    criterion = loss("cross_entropy")
    assert criterion.figures(criterion.totals(output, torch.zeros(1, 1, dtype=torch.int64)))["perplexity"] > 1e300


def test_mse_is_the_mean_over_all_values() -> None:
    output, target = scores(6, 2), -scores(6, 2)
    criterion = loss("mse")
    assert criterion(output, target).item() == pytest.approx(((output - target) ** 2).mean().item())
    totals = criterion.totals(output[:1], target[:1]) + criterion.totals(output[1:], target[1:])
    assert criterion.figures(totals)["loss"] == pytest.approx(criterion(output, target).item())


def test_mse_never_broadcasts() -> None:
    with pytest.raises(SettingError, match=r"targets' shape; got \(6, 1\), \(6,\)"):
        loss("mse")(scores(6, 1), scores(6))


@pytest.mark.parametrize(
    ("name", "output", "target_shape", "sentence"),
    [
        ("cross_entropy", (2, 10), (), "^network 'lenet' gives 10 outputs but the data has 20 classes$"),
        (
            "cross_entropy",
            (2, 10, 30),
            (),
            r"gives shape \(samples, 10, 30\); cross_entropy takes \(samples, classes\)",
        ),
        ("cross_entropy", (2, 30), (5,), r"gives shape \(samples, 30\); .*data's targets have \(samples, 5\)$"),
        ("cross_entropy", (2, 4, 4, 30), None, r"gives shape \(samples, 4, 4, 30\); cross_entropy takes"),
        ("cross_entropy", (2,), None, r"gives shape \(samples\); cross_entropy takes"),
        ("mse", (2, 3), (4,), r"gives shape \(samples, 3\); mse takes the shape of the data's targets, \(samples, 4\)"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(
    name: str, output: tuple[int, ...], target_shape: tuple[int, ...] | None, sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        loss(name).check("lenet", torch.empty(output, device="meta"), target_shape, 20)


def test_an_output_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(SettingError, match="network 'mine' gives an object of type dict; mse takes a tensor"):
        loss("mse").check("mine", {}, None, 3)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0; accepted: from 0, below 1"),
        ({"auxiliary_weight": -0.1}, "auxiliary_weight is -0.1; accepted: from 0"),
        (
            {"metric": "recal"},
            "metric: unknown name 'recal'; did you mean 'recall'. Known: loss, absolute_error, accuracy",
        ),
    ],
)
def test_unfit_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        ROOM.load("cross_entropy")(**settings)


def scaled(output: Tensor, target: Tensor, scale: float = 1.0) -> Tensor:
    return (output - target).abs().mean() * scale


def test_a_user_s_function_is_a_criterion() -> None:
    criterion = build_loss(scaled, arguments={"scale": 2.0}, name="mine:scaled")
    output, target = scores(4, 2), torch.zeros(4, 2)
    assert torch.equal(criterion(output, target), scaled(output, target, 2.0))
    assert (criterion.metric, criterion.higher_is_better, criterion.measured) == ("loss", False, ("loss",))
    totals = criterion.totals(output, target)
    assert totals[0, 1] == 4
    assert criterion.figures(totals)["loss"] == pytest.approx(scaled(output, target, 2.0).item())


def test_a_user_s_class_is_made_with_its_arguments() -> None:
    criterion = build_loss(nn.HuberLoss, arguments={"delta": 0.1})
    expected = functional.huber_loss(scores(3), torch.zeros(3), delta=0.1)
    assert torch.equal(criterion(scores(3), torch.zeros(3)), expected)


class Trainable(nn.Linear):
    def forward(self, output: Tensor, target: Tensor | None = None) -> Tensor:
        return output.mean()


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        (scaled, {"scal": 2}, "loss 'mine:loss' takes no argument 'scal'; did you mean 'scale'"),
        (nn.HuberLoss, {"delt": 2}, "loss 'mine:loss' takes no argument 'delt'; did you mean 'delta'"),
        (lambda output: output, {}, r"loss 'mine:loss' cannot be called as loss\(output, target\)"),
        (dict, {}, r"makes an object that cannot be called; accepted: loss\(output, target\)"),
        (Trainable, {"in_features": 2, "out_features": 1}, "has parameters to train; put them into the network"),
        (3, {}, "is of type int; accepted: a function or a class"),
    ],
)
def test_an_unfit_function_is_refused(function: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        build_loss(function, arguments=arguments, name="mine:loss")


@pytest.mark.parametrize(
    ("gives", "sentence"),
    [
        (lambda output, target: output, r"gives a tensor of shape \(4, 2\); accepted: a scalar tensor"),
        (lambda output, target: 1.0, "gives a float; accepted: a scalar tensor"),
    ],
)
def test_a_function_that_gives_no_scalar_is_refused(gives: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        build_loss(gives)(scores(4, 2), torch.zeros(4, 2))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("wrong", [5, -1])
def test_a_target_that_no_output_belongs_to_is_named_with_its_place(wrong: int, smoothing: float) -> None:
    criterion = loss("cross_entropy", label_smoothing=smoothing)
    sentence = rf"^a target is {wrong}; accepted: 0 to 4, since the network gives 5 outputs, one for each class$"
    for call in (criterion, criterion.totals):
        one = classes(6)
        one[3] = wrong
        with pytest.raises(TargetError, match=sentence) as refused:
            call(scores(6, 5), one)
        assert refused.value.place == 3
        many = classes(6, 4)
        many[2, 1], many[0, 0] = wrong, -100
        with pytest.raises(TargetError, match=sentence) as refused:
            call(scores(6, 4, 5), many)
        assert refused.value.place == 2, "of the sample, not of the position in it"
    assert str(refused.value.of(1234)).startswith(f"the target of sample 1234 is {wrong}; ")


@pytest.mark.parametrize("shape", [(8, 5), (8, 3, 5)])
def test_a_target_that_is_ignored_counts_for_nothing_and_needs_no_score(shape: tuple[int, ...]) -> None:
    criterion = loss("cross_entropy", ignore_index=5)
    output, target = scores(*shape), classes(*shape[:-1])
    target[2], target[4] = 5, -100
    counts = (target != 5) & (target != -100)
    expected = functional.cross_entropy(output[counts], target[counts])
    torch.testing.assert_close(criterion(output, target), expected)
    assert criterion.counted(target) == counts.sum()
    figures = criterion.figures(criterion.totals(output, target))
    assert figures["loss"] == pytest.approx(expected.item())
    assert figures["accuracy"] == pytest.approx((output[counts].argmax(-1) == target[counts]).float().mean().item())
    criterion.check("mine", output, shape[1:-1], 6)
    with pytest.raises(SettingError, match="gives 5 outputs but the data has 7 classes"):
        criterion.check("mine", output, shape[1:-1], 7)
    target[0] = 6
    with pytest.raises(TargetError, match="a target is 6"):
        criterion(output, target)


@pytest.mark.parametrize(("shape", "places"), [((3, 4, 5), (3, 4)), ((2, 6, 4, 5), (2, 6, 4))])
def test_scores_with_the_classes_second_as_torch_has_it_are_the_same_scores(
    shape: tuple[int, ...], places: tuple[int, ...]
) -> None:
    criterion = loss("cross_entropy", label_smoothing=0.1)
    output, target = scores(*shape), classes(*places)
    turned = output.movedim(-1, 1).contiguous()
    torch.testing.assert_close(criterion(turned, target), criterion(output, target))
    torch.testing.assert_close(criterion(turned, target), functional.cross_entropy(turned, target, label_smoothing=0.1))
    torch.testing.assert_close(criterion.totals(turned, target), criterion.totals(output, target))
    torch.testing.assert_close(criterion((turned, turned), target), criterion((output, output), target))
    figures = criterion.figures(criterion.totals(turned, target))
    assert set(figures) == {"loss", "accuracy", "perplexity"}
    for fitting in (output, turned, (turned, output)):
        criterion.check("mine", fitting, places[1:], 5)
    with pytest.raises(SettingError, match="network 'mine' gives 5 outputs but the data has 6 classes"):
        criterion.check("mine", turned, places[1:], 6)


def test_an_image_of_one_pixel_is_the_scores_of_its_sample() -> None:
    criterion, output, target = loss("cross_entropy"), scores(6, 5), classes(6)
    pixel = output[:, :, None, None]
    torch.testing.assert_close(criterion(pixel, target), criterion(output, target))
    torch.testing.assert_close(criterion.totals(pixel, target), criterion.totals(output, target))
    for shape in ((), None):
        criterion.check("mine", pixel, shape, 5)
    with pytest.raises(SettingError, match="gives 5 outputs but the data has 6 classes"):
        criterion.check("mine", pixel, (), 6)
    with pytest.raises(SettingError, match=r"gives shape \(samples, 5, 1, 2\); cross_entropy takes"):
        criterion.check("mine", pixel.expand(6, 5, 1, 2), (), 5)


def test_as_many_positions_as_classes_are_read_with_the_classes_last() -> None:
    output, target = scores(3, 5, 5), classes(3, 5)
    expected = functional.cross_entropy(output.flatten(0, 1), target.flatten())
    torch.testing.assert_close(loss("cross_entropy")(output, target), expected)


def test_a_tuple_that_is_not_all_scores_is_refused() -> None:
    with pytest.raises(SettingError, match="gives a tuple whose item 2 is of type tuple; cross_entropy takes a tensor"):
        loss("cross_entropy").check("lstm", (torch.empty(2, 5), (1, 2)), (), 5)
    with pytest.raises(SettingError, match=r"gives shape \(samples, 5, 3\); cross_entropy takes"):
        loss("cross_entropy").check("mine", (torch.empty(2, 5), torch.empty(2, 5, 3)), (), 5)
    with pytest.raises(SettingError, match="network 'mine' gives a tuple of 2; mse takes a tensor"):
        loss("mse").check("mine", (torch.empty(2, 3), torch.empty(2, 3)), (3,), None)


# Weights of classes

WEIGHTS = (0.5, 2.0, 0.0, 1.0, 3.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weights_of_classes_are_those_of_torch_and_add_up_over_parts_of_a_batch(smoothing: float) -> None:
    output, target = scores(9, 5).double(), classes(9)
    target[4] = -100
    weight = torch.tensor(WEIGHTS, dtype=torch.float64)
    expected = functional.cross_entropy(output, target, weight, label_smoothing=smoothing)
    criterion = loss("cross_entropy", class_weights=WEIGHTS, label_smoothing=smoothing)
    torch.testing.assert_close(criterion(output, target), expected)
    parts = [(output[start : start + 3], target[start : start + 3]) for start in (0, 3, 6)]
    counted = [criterion.counted(part) for _, part in parts]
    whole = sum(criterion(*part) * count for part, count in zip(parts, counted, strict=True) if count)
    torch.testing.assert_close(whole / sum(counted), expected)
    totals = sum(criterion.totals(*part) for part in parts)
    figures = criterion.figures(totals)
    assert figures["loss"] == pytest.approx(expected.item())
    assert figures["accuracy"] == (output.argmax(1) == target).sum().item() / 8


@pytest.mark.parametrize("weights", [(), WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_of_shares_of_classes_is_made_of_those_of_the_classes(weights: Any, smoothing: float) -> None:
    criterion = loss("cross_entropy", class_weights=weights, label_smoothing=smoothing, auxiliary_weight=0.5)
    output, one, two = scores(6, 5).double(), classes(6), classes(6).roll(1)
    shares = 0.7 * functional.one_hot(one, 5).double() + 0.3 * functional.one_hot(two, 5).double()
    counts = 0.7 * criterion.counted(one), 0.3 * criterion.counted(two)
    expected = (criterion(output, one) * counts[0] + criterion(output, two) * counts[1]) / sum(counts)
    assert criterion.counted(shares) == pytest.approx(sum(counts))
    torch.testing.assert_close(criterion(output, shares), expected)
    torch.testing.assert_close(criterion((output, output), shares), 1.5 * expected)


def test_weights_of_classes_that_cannot_be_are_refused() -> None:
    for weights in ((1.0, -1.0), (0.0, 0.0)):
        with pytest.raises(SettingError, match="a number from 0 for each class, and one above 0"):
            CrossEntropy(class_weights=weights)
    with pytest.raises(SettingError, match=r"class_weights has 5 numbers, and network 'net' gives 4 outputs"):
        loss("cross_entropy", class_weights=WEIGHTS).check("net", scores(2, 4), (), None)


def test_weights_of_classes_by_name_and_by_how_rare_they_are() -> None:
    counts = torch.tensor([6, 0, 2])
    wanted = {"balanced": [8 / 12, 1.0, 8 / 4], ("cat", 3.0): [1.0, 1.0, 3.0]}
    for given, each in wanted.items():
        weights = given if isinstance(given, str) else dict([given])
        by_data, by_number = loss("cross_entropy", class_weights=weights), loss("cross_entropy", class_weights=each)
        both = several(LossTerm(loss=CrossEntropy(class_weights=weights)))
        for criterion in (by_data, both):
            criterion.weigh(("ant", "bee", "cat"), lambda: counts)
            torch.testing.assert_close(criterion(scores(9, 3), classes(9) % 3), by_number(scores(9, 3), classes(9) % 3))
    with pytest.raises(SettingError, match=r"loss.class_weights: unknown name 'cta'; did you mean 'cat'\?"):
        loss("cross_entropy", class_weights={"cta": 1.0}).weigh(("ant", "cat"), lambda: counts)


# Several losses


def several(*terms: LossTerm) -> Any:
    return loss("weighted", parts=terms)


def test_several_losses_are_added_with_their_weights_and_measured_one_by_one() -> None:
    smooth = CrossEntropy(label_smoothing=0.3)
    both = several(LossTerm(loss=CrossEntropy()), LossTerm(loss=smooth, weight=0.5, output=1))
    outputs, target = (scores(6, 5), -scores(6, 5)), classes(6)
    parts = CrossEntropy(auxiliary_weight=0.3).build()(outputs, target), smooth.build()(outputs[1], target)
    torch.testing.assert_close(both(outputs, target), parts[0] + 0.5 * parts[1])
    whole = both.figures(both.totals(outputs, target))
    halves = both.totals((outputs[0][:2], outputs[1][:2]), target[:2])
    halves = halves + both.totals((outputs[0][2:], outputs[1][2:]), target[2:])
    assert both.figures(halves) == pytest.approx(whole)
    assert list(whole) == ["loss", "cross_entropy", "accuracy", "cross_entropy_1"]
    assert whole["loss"] == pytest.approx(whole["cross_entropy"] + 0.5 * whole["cross_entropy_1"])
    assert (both.metric, both.higher_is_better) == ("accuracy", True)


def test_several_losses_are_means_over_what_the_first_counts_in_any_cut_of_a_batch() -> None:
    both = several(LossTerm(loss=CrossEntropy(class_weights=WEIGHTS)), LossTerm(loss=CrossEntropy(), weight=2.0))
    output, target = scores(9, 5).double(), classes(9)
    target[:4] = -100
    cut = [(output[start : start + 3], target[start : start + 3]) for start in (0, 3, 6)]
    added = sum(both(*part) * both.counted(part[1]) for part in cut if both.counted(part[1]))
    torch.testing.assert_close(added / both.counted(target), both(output, target))


def test_several_losses_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match="parts is an empty list"):
        ROOM.load("weighted")()
    with pytest.raises(SettingError, match="the first weight is 0"):
        ROOM.load("weighted")(parts=(LossTerm(loss=MeanSquaredError(), weight=0.0),))
    with pytest.raises(SettingError, match="output is 2, and the network gives 1; accepted: 0 to 0"):
        several(LossTerm(loss=MeanSquaredError(), output=2)).check("net", scores(2, 4), (4,), None)
