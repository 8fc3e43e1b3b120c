"""A network of symbols writes with each evaluation, or at a period of its own, and training does not notice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train._training import trained
from volary import Session
from volary.data.data_names import DataNames
from volary.data.sources.text import Text
from volary.errors import BadInput, DataError, SettingError
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
    return replace(built, module=Next(8, turned))


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


def of_documents(prompt: str) -> Model:
    Path("corpus").mkdir()
    for number in range(10):
        Path("corpus", f"{number}.txt").write_text("abcdefgh" * 4)
    source = {"name": "documents", "folder": "corpus", "tokens": "tokens", "length": 4}
    session = Session(network="lstm", data={"source": source}, evaluate={"text": PROMPT | {"prompt": prompt}})
    return replace(build_model(session, torch.device("cpu")), module=Next(9, False))


def test_documents_are_continued_and_their_end_is_written() -> None:
    writer = TextWriter.of(of_documents("ef"))
    assert writer is not None
    assert writer.write(7, torch.device("cpu")) == "gh<end of document>abc"


def test_lines_are_predicted_by_a_network_of_documents() -> None:
    model = of_documents("ef")
    Path("new.txt").write_text("ab\n\nbcdefg\n")
    found = model.session.data.source.unlabelled(Path("new.txt"), DataNames.of(model.samples))
    inputs, ends = found.samples.fetch(torch.arange(2))
    assert (inputs.tolist(), ends.tolist()) == ([[0, 1, 0, 0], [3, 4, 5, 6]], [1, 3])
    Path("new.txt").write_text("ab\nxy\n")
    with pytest.raises(DataError, match=r"new\.txt:2: has 'x', which the text of the training has not; .* 9 char"):
        model.session.data.source.unlabelled(Path("new.txt"), DataNames.of(model.samples))


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
        (
            {"text": {"prompt": "a"}, "every": "never"},
            "evaluate.text.prompt: is given, and every is 'never'; .* text.every",
        ),
        ({"text": {"prompt": "a", "every": "never"}}, "evaluate.text.prompt: is given, and text.every is 'never'"),
        ({"text": {"every": "2 steps"}}, "evaluate.text.every: is given, and text.prompt is not"),
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


WRITES = {"prompt": "the ", "length": 5, "temperature": 0.0}


def of(name: str, evaluate: dict[str, Any]) -> Session:
    """A run of four steps."""
    Path("t.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    return Session(
        network={"name": "layers", "layers": LAYERS},
        data={"source": {"name": "text", "path": "t.txt", "length": 8}, "batch_size": 8},
        optimizer={"name": "sgd", "lr": 0.5},
        train={"steps": 4},
        evaluate=evaluate,
        strategy=STRATEGIES[name],
    )


def told(name: str, evaluate: dict[str, Any]) -> tuple[list[tuple[int, str]], list[int]]:
    """Step and text of all that a run wrote, and the steps after which it was evaluated."""
    with RunReader(of(name, evaluate).train(show=False).directory) as reader:
        texts = sorted((event.data["of_step"], event.data["text"]) for event in reader.events(kind="text"))
        return texts, sorted(event.step or 0 for event in reader.events(kind="evaluated"))


@pytest.mark.slow  # a run of real processes each
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_writes_once_with_each_evaluation(name: str) -> None:
    texts, evaluated = told(name, {"every": "2 steps", "text": WRITES})
    assert [step for step, _ in texts] == evaluated
    assert evaluated[-1] == 4
    assert all(len(text) == 5 for _, text in texts)


@pytest.mark.slow  # a run of real processes each
@pytest.mark.parametrize("every", ["3 steps", "never"])
@pytest.mark.parametrize("name", ["bsp", "servers", "tensor"])
def test_a_text_has_a_period_of_its_own_whatever_that_of_evaluations_is(name: str, every: str) -> None:
    texts, evaluated = told(name, {"every": every, "text": {**WRITES, "every": "2 steps"}})
    assert ([step for step, _ in texts], evaluated) == ([2, 4], [] if every == "never" else [3, 4])
    assert all(len(text) == 5 for _, text in texts)


@pytest.mark.parametrize("every", ["2 steps", "never"])
def test_one_worker_writes_at_its_own_period_and_at_the_end(every: str) -> None:
    found = trained(0, 1, of("alone", {"every": every, "text": {**WRITES, "every": "3 steps"}}))
    texts = found.events("text")
    assert [one["of_step"] for one in texts] == [3, 4]
    assert all(len(one["text"]) == 5 for one in texts)
    assert [step for step, _ in found.metrics] == ([] if every == "never" else [2, 4])
