"""A network is built for the data at hand, whether it is published or a user's own."""

from typing import Any

import pytest
import torch
from torch import nn

from volary.errors import SettingError
from volary.network import build
from volary.network.zoo import ROOM


class Small(nn.Module):
    def __init__(self, classes: int, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.fc = nn.Linear(width, classes)


def everything(**arguments: Any) -> nn.Module:
    module = Small(2)
    module.given = sorted(arguments)  # type: ignore[assignment]
    return module


def test_shape_and_classes_come_from_the_data_unless_set() -> None:
    from_data = build(ROOM.load("softmax")(), (1, 2, 3), 5)
    as_set = build(ROOM.load("softmax")(input_shape=(7,), classes=9), (1, 2, 3), 5)
    assert [tuple(module[1].weight.shape) for module in (from_data, as_set)] == [(5, 6), (9, 7)]  # type: ignore[index]


def test_a_seed_gives_the_same_first_values() -> None:
    def weights() -> torch.Tensor:
        torch.manual_seed(3)
        return nn.utils.parameters_to_vector(build(ROOM.load("lenet")(), (1, 28, 28), 10).parameters())

    assert torch.equal(weights(), weights())


def test_a_factory_gets_what_its_signature_names() -> None:
    small = build(Small, (1, 8, 8), 3, arguments={"width": 6})
    assert isinstance(small, Small)
    assert (small.fc.out_features, small.width) == (3, 6)


def test_a_factory_s_own_arguments_go_before_the_data_s() -> None:
    small = build(Small, (1, 8, 8), 3, arguments={"classes": 8})
    assert isinstance(small, Small)
    assert small.fc.out_features == 8


def test_a_factory_with_free_keywords_gets_its_arguments_only() -> None:
    assert build(everything, (1, 8, 8), 3, arguments={"depth": 1}).given == ["depth"]


@pytest.mark.parametrize(
    ("factory", "arguments", "sentence"),
    [
        (Small, {"widht": 2}, "network 'net.py:Net' takes no argument 'widht'; did you mean 'width'.*Known: classes"),
        (lambda depth: Small(depth), {}, "network 'net.py:Net' needs depth; given: no arguments"),
        (lambda: 3, {}, "gives an object of type int; accepted: a torch.nn.Module"),
        (lambda: Small, {}, "gives an object of type type; accepted: a torch.nn.Module"),
        (lambda: nn.LazyLinear(3), {}, "has the lazy parameter 'weight'; give that layer its sizes"),
        (Small(3), {}, "is a module that exists already; name its class"),
        (7, {}, "is of type int; accepted: a class or a function"),
    ],
)
def test_an_unfit_factory_is_refused_in_one_sentence(factory: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence) as refusal:
        build(factory, (4,), 3, arguments=arguments, name="net.py:Net")
    assert "\n" not in str(refusal.value)


def test_classes_that_nobody_knows_are_asked_for() -> None:
    with pytest.raises(SettingError, match=r"network\.classes is not set, and the data does not say"):
        build(ROOM.load("lenet")(), (1, 28, 28), None)
    with pytest.raises(SettingError, match="network 'Small' needs classes; given: no arguments"):
        build(Small, (4,), None)
    assert isinstance(build(ROOM.load("lenet")(classes=3), (1, 28, 28), None), nn.Module)


def test_an_error_inside_a_factory_keeps_its_traceback() -> None:
    def broken() -> nn.Module:
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        build(broken, (4,), 3)
