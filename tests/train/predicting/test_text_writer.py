"""A network of symbols writes with each evaluation, and training does not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from volary import Result, Session
from volary.data.sources.text import Text
from volary.errors import BadInput, SettingError
from volary.run.database.reader import RunReader
from volary.train.model import Model, build_model
from volary.train.predicting.text_writer import TextWriter

PROMPT = {"prompt": "ab", "length": 6, "temperature": 0.0}


class Next(nn.Module):
    """Gives the symbol after each one the highest score; dropout would change that in training."""

    def __init__(self, classes: int, turned: bool) -> None:
        super().__init__()
        self.classes, self.turned, self.drop = classes, turned, nn.Dropout(0.9)

    def forward(self, symbols: Tensor) -> Tensor:
        scores = nn.functional.one_hot((symbols + 1) % self.classes, self.classes).float()
        return self.drop(10 * (scores.movedim(-1, 1) if self.turned else scores))


def model(text: dict[str, Any], length: int = 4, turned: bool = False) -> Model:
    Path("t.txt").write_text("abcdefgh" * 20)
    source = {"name": "text", "path": "t.txt", "length": length}
    session = Session(network="lstm", data={"source": source}, evaluate={"text": text})
    built = build_model(session, torch.device("cpu"))
    return Model(Next(8, turned), built.criterion, built.samples, 8, session)


@pytest.mark.parametrize(("length", "turned"), [(4, False), (16, False), (4, True), (1, False)])
def test_it_continues_the_prompt_with_the_most_probable_symbols(length: int, turned: bool) -> None:
    of = model(PROMPT, length, turned)
    of.module.train()
    before = torch.get_rng_state()
    writer = TextWriter.of(of)
    assert writer is not None
    assert writer.write(7, torch.device("cpu")) == "cdefgh"
    assert of.module.training
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_drawn_depends_on_the_step_alone() -> None:
    writer = TextWriter.of(model(PROMPT | {"temperature": 20.0, "length": 40}))
    assert writer is not None
    device = torch.device("cpu")
    once = writer.write(7, device)
    torch.rand(3)
    assert writer.write(7, device) == once
    assert writer.write(8, device) != once
    assert set(once) <= set("abcdefgh")


@pytest.mark.parametrize(
    ("evaluate", "sentence"),
    [
        ({"text": {"prompt": "a", "length": 0}}, "length"),
        ({"text": {"prompt": "a", "temperature": -1}}, "temperature"),
        ({"text": {"prompt": "a"}, "every": "never"}, "evaluate.text: is of evaluations, and every is"),
        ({"text": {"prompt": "a"}}, "evaluate.text.prompt is given, and data.source is no text"),
    ],
)
def test_settings_that_nothing_can_be_written_by_are_refused(evaluate: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Session(network="lenet", data={"source": "digits"}, evaluate=evaluate)


def test_a_prompt_that_the_data_cannot_say_is_refused_and_none_writes_nothing() -> None:
    with pytest.raises(SettingError, match=r"evaluate.text.prompt has 'z', which the data has not; .* 8 characters"):
        TextWriter.of(model(PROMPT | {"prompt": "az"}))
    assert TextWriter.of(model({})) is None


def test_numbers_become_text_again_of_characters_and_of_pairs() -> None:
    Path("merges.txt").write_text("a b\n")
    for source in (Text(path=Path("t.txt")), Text(path=Path("t.txt"), merges=Path("merges.txt"))):
        letters = tuple("ab\n")
        assert source.decoder(letters)(source.encoder(letters)("ab\nba")) == "ab\nba"
        assert source.decoder(letters)([10**6]) == ""


LAYERS = [
    {"embedding": {"symbols": "classes", "width": 16}},
    {"lstm": {"hidden": 16}},
    {"linear": {"outputs": "classes", "axis": -1}},
]
STRATEGIES = {
    "alone": {},
    "bsp": {"workers": 2},
    "servers": {"workers": 2, "exchange": {"name": "server", "servers": 1}},
    "sharded": {"workers": 2, "partition": "sharded"},
    "tensor": {"workers": 2, "partition": "tensor"},
    "pipeline": {"workers": 2, "partition": "pipeline"},
    "local": {"workers": 2, "consistency": "local"},
}


@pytest.fixture(scope="module")
def written() -> Callable[[Result], list[tuple[int, str]]]:
    def texts(result: Result) -> list[tuple[int, str]]:
        """Step and text, one for each evaluation."""
        with RunReader(result.directory) as reader:
            found = sorted((event.data["of_step"], event.data["text"]) for event in reader.events(kind="text"))
            assert [step for step, _ in found] == sorted(event.step or 0 for event in reader.events(kind="evaluated"))
            return found

    return texts


@pytest.mark.slow  # a run of real processes each
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_writes_once_with_each_evaluation(name: str, written: Callable[..., Any]) -> None:
    Path("t.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    session = Session(
        network={"name": "layers", "layers": LAYERS},
        data={"source": {"name": "text", "path": "t.txt", "length": 8}, "batch_size": 8},
        optimizer={"name": "sgd", "lr": 0.5},
        train={"steps": 4},
        evaluate={"every": "2 steps", "text": {"prompt": "the ", "length": 5, "temperature": 0.0}},
        strategy=STRATEGIES[name],
    )
    found = written(session.train(show=False))
    assert [step for step, _ in found][-1] == 4
    assert all(len(text) == 5 for _, text in found)
