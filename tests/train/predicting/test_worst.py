"""The samples that a network is worst at: by a loss that is computed one by one here, and without damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from page.test_making import photos
from volary.errors import BadInput
from volary.session import Session
from volary.train.model import Model, build_model
from volary.train.predicting.worst import worst_samples


def model_of(**settings: object) -> Model:
    model = build_model(Session(**settings), torch.device("cpu"))  # type: ignore[arg-type]
    model.module.eval()
    return model


def images(folder: Path) -> Model:
    photos(folder / "train")
    photos(folder / "test", each=5)
    source = {"name": "images", "folder": str(folder)}
    return model_of(network="softmax", data={"source": source, "batch_size": 4, "skip_corrupt": 0.5})


def test_the_worst_come_first_with_their_files_and_pictures(tmp_path):
    model = images(tmp_path / "data")
    inputs, targets = model.validation.fetch(torch.arange(10))
    with torch.no_grad():
        scores = model.module(inputs)
    losses = [float(cross_entropy(one[None], target[None])) for one, target in zip(scores, targets, strict=True)]
    expected = sorted(range(10), key=lambda number: -losses[number])
    found = worst_samples(model, 4)
    assert [one.number for one in found] == expected[:4]
    for one in found:
        assert one.loss == pytest.approx(losses[one.number], rel=1e-5)
        assert Path(one.name).parent.name == one.target == ("blue", "red")[targets[one.number]]
        assert one.answer == ("blue", "red")[scores[one.number].argmax()]
        assert one.share == pytest.approx(float(scores[one.number].softmax(0).max()), rel=1e-5)
        assert one.link.startswith("data:image/png;base64,")
    assert len(worst_samples(model, 200)) == 10


def test_a_damaged_sample_is_left_out_and_others_keep_their_names(tmp_path):
    model = images(tmp_path / "data")
    damaged = tmp_path / "data" / "test" / "blue" / "2.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    found = worst_samples(model, 200)
    assert sorted(one.number for one in found) == [0, 1, *range(3, 10)]
    assert {Path(one.name).name for one in found if one.target == "blue"} == {"0.png", "1.png", "3.png", "4.png"}
    assert all(Path(one.name).parent.name == one.target for one in found)


def test_of_numbers_it_is_the_squared_difference(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "".join(f"{number},{3 * number}\n" for number in range(8)))
    source = {"name": "csv", "train": str(table), "test": str(table), "target": "y", "kind": "number"}
    layers = {"layers": [{"linear": {"outputs": 1}}]}
    model = model_of(network=layers, loss="mse", data={"source": source, "batch_size": 3})
    found = worst_samples(model, 8)
    assert [one.loss for one in found] == sorted((one.loss for one in found), reverse=True)
    for one in found:
        assert float(one.target) == 3 * one.number
        assert one.loss == pytest.approx((float(one.answer) - 3 * one.number) ** 2, rel=1e-3)
        assert (one.share, one.name, one.link) == (None, "", "")


@pytest.mark.parametrize("count", [0, -1, 201])
def test_as_many_as_nobody_looks_at_are_refused(count, tmp_path):
    with pytest.raises(BadInput, match=f"--worst is {count}; accepted: 1 to 200"):
        worst_samples(images(tmp_path / "data"), count)


def test_a_loss_of_the_users_own_is_refused():
    model = model_of(network="softmax", loss="torch.nn:CrossEntropyLoss", data={"source": "digits"})
    with pytest.raises(BadInput, match="the loss is your own; accepted: "):
        worst_samples(model, 3)
