"""Samples that are drawn by weight: as often as the weights say, exact over ranks, resumed, refused in sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.data.choosing.weights import weights_of
from volary.data.feed import Feed
from volary.data.memory import InMemory
from volary.data.order import drawn
from volary.errors import DataError, SettingError
from volary.session import Data, Session
from volary.session.data_section import Sampling
from volary.sharding.samples import SampleShare
from volary.train.model import build_model

NAMES = "class Rows:\n    weights, targets = [1, 0, 3], [0, 0, 1]\n    __len__ = lambda self: 3\n"


def numbered(counts: list[int]) -> InMemory:
    targets = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return InMemory(torch.arange(len(targets), dtype=torch.float32).unsqueeze(1), targets, len(counts))


@given(st.lists(st.sampled_from([0.0, 1e-9, 1.0, 3.5]), min_size=1, max_size=40).filter(any), st.integers(0, 2**60))
def test_a_sample_of_weight_0_never_comes(weights, seed):
    given_weights = torch.tensor(weights, dtype=torch.float64)
    order = drawn(given_weights, seed, 3)
    assert len(order) == len(weights)
    assert (given_weights[order] > 0).all()


def test_samples_come_in_proportion_to_their_weights_another_draw_each_epoch():
    weights = torch.tensor([1.0, 0.0, 3.0, 6.0]).repeat(50)
    orders = [drawn(weights, 5, epoch) for epoch in range(40)]
    assert len({tuple(order.tolist()) for order in orders}) == 40
    seen = torch.cat(orders).remainder(4).bincount(minlength=4) / 8000
    torch.testing.assert_close(seen, torch.tensor([0.1, 0.0, 0.3, 0.6]), atol=0.02, rtol=0)


def test_classes_come_as_often_as_is_asked_whatever_their_numbers():
    samples = numbered([90, 9, 1])
    for classes, share in (((), [1 / 3] * 3), ((2, 1, 1), [0.5, 0.25, 0.25])):
        weights = weights_of(samples, Sampling(by="class", classes=classes))
        of_class = torch.zeros(3, dtype=torch.float64).index_add(0, samples.targets, weights)
        torch.testing.assert_close((of_class / of_class.sum()).tolist(), share)


def test_classes_come_as_often_as_is_asked_by_name():
    samples = numbered([90, 9, 1])
    weights = weights_of(samples, Sampling(by="class", classes={"0": 4.0, "2": 1.0}))
    torch.testing.assert_close(weights, weights_of(samples, Sampling(by="class", classes=(4, 1, 1))))
    with pytest.raises(SettingError, match=r"classes: unknown name .3.; Known: 0, 1, 2"):
        weights_of(samples, Sampling(by="class", classes={"3": 4.0}))


def test_a_session_s_loss_weighs_the_classes_of_its_training_part():
    def counted(weights, targets):
        loss = {"name": "cross_entropy", "class_weights": weights}
        model = build_model(Session(network="softmax", data={"source": "digits"}, loss=loss), torch.device("cpu"))
        return model.criterion.counted(targets if targets is not None else model.samples.targets), len(model.samples)

    assert counted({"3": 2.5}, torch.tensor([3, 4]))[0] == 3.5
    found, samples = counted("balanced", None)
    assert found == pytest.approx(samples)
    assert counted("balanced", torch.tensor([8]))[0] != counted("balanced", torch.tensor([3]))[0]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 20))
def test_any_number_of_ranks_learns_from_the_same_draws_also_after_a_resume(world, later, steps):
    samples, weights = numbered([20, 5]), torch.rand(25, dtype=torch.float64)

    def feeds(ranks):
        return [Feed(samples, 6, share=SampleShare(rank, ranks), weights=weights) for rank in range(ranks)]

    def batch(of):
        rows = [next(feed).inputs.view(-1) for feed in of]
        return sorted(torch.cat(rows).tolist())

    (alone,), of = feeds(1), feeds(world)
    for _ in range(steps):
        assert batch(of) == batch([alone])
    state, resumed = of[0].state(), feeds(later)
    for feed in resumed:
        feed.restore(state)
    assert [batch(resumed) for _ in range(8)] == [batch([alone]) for _ in range(8)]
    with pytest.raises(DataError, match="drawn by other weights than when the checkpoint was written"):
        Feed(samples, 6, weights=weights + 1).restore(state)
    with pytest.raises(DataError, match="or not drawn"):
        Feed(samples, 6).restore(state)


def test_a_column_of_a_table_is_no_input_but_the_weight():
    rows = "".join(f"{number},{number % 2},{number % 3}\n" for number in range(30))
    Path("all.csv").write_text(f"x,kind,often\n{rows}")
    source = {"name": "csv", "train": "all.csv", "target": "kind", "weight": "often"}
    data = {"source": source, "sampling": {"by": "weight"}, "folds": 3, "batch_size": 4}
    session = Session(network="softmax", data=data)
    model = build_model(session, torch.device("cpu"))
    weights = weights_of(model.samples, session.data.sampling)
    assert (model.samples.input_shape, len(weights)) == ((1,), 20)
    assert weights.tolist() == [number % 3 for number in model.samples.numbers.tolist()]


def test_weights_of_a_data_set_of_ones_own_are_its_attribute():
    Path("own.py").write_text(NAMES + "    __getitem__ = lambda self, i: (float(i), 0)\n")
    session = Session(network="softmax", data={"source": "own.py:Rows"}, evaluate={"every": "never"})
    from volary.train.data.opening import open_data

    samples = open_data(session, "train")
    assert weights_of(samples, Sampling(by="weight")).tolist() == [1, 0, 3]
    assert weights_of(samples, Sampling(by="class")).tolist() == [0.5, 0.5, 1]


@pytest.mark.parametrize(
    ("samples", "sampling", "error", "says"),
    [
        (numbered([2, 1]), {"by": "weight"}, DataError, "the data says no weights; accepted: csv with the setting"),
        (numbered([2, 1]), {"by": "class", "classes": [1]}, SettingError, "has 1 numbers; accepted: 2, one a class"),
        (
            numbered([2, 0]),
            {"by": "class", "classes": [0, 1]},
            SettingError,
            "gives 0 to all classes that have samples",
        ),
        (
            InMemory(torch.zeros(3, 1), torch.zeros(3, 1)),
            {"by": "class"},
            DataError,
            "targets are no classes, but float32 (3, 1)",
        ),
        (
            InMemory(torch.zeros(2, 1), torch.zeros(2, 1), weights=torch.tensor([1.0, -1.0])),
            {"by": "weight"},
            DataError,
            "the weight of sample 1 is -1; accepted: a number, 0 or more",
        ),
    ],
)
def test_weights_that_nobody_knows_are_refused(samples, sampling, error, says):
    with pytest.raises(error, match=re.escape(says)):
        weights_of(samples, Sampling(**sampling))


def test_what_draws_nothing_is_refused():
    with pytest.raises(SettingError, match="accepted: order, as shuffle is false and draws nothing"):
        Data(source="digits", shuffle=False, sampling={"by": "class"})
    with pytest.raises(SettingError, match=r"is given, and by is .order.; accepted: with it by: class"):
        Data(source="digits", sampling={"classes": [1, 2]})
