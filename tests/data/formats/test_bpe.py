"""Byte pair encoding: GPT-2's symbols from a file of merges, every text comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from volary.data.formats.bpe import Bpe
from volary.data.sources.text import Text
from volary.errors import DataError

# the first eight of GPT-2's; \u0120 is a space
MERGES = "#version: 0.2\n\u0120 t\n\u0120 a\nh e\ni n\nr e\no n\n\u0120t he\ne r\n"


def coder(folder: Path = Path()) -> Bpe:
    (folder / "merges.txt").write_text(MERGES, encoding="utf-8")
    return Bpe(folder / "merges.txt")


def test_numbers_are_those_of_gpt_2():
    found = coder()
    assert len(found) == 256 + 8
    # "!" is 0, "t" is 83, a space 220, a line feed 198 and " the" 262 in GPT-2's vocab.json
    assert found.encode("! the\nt ") == [0, 262, 198, 83, 220]
    assert found.encode("here") == [258, 260]
    assert found.encode(" the there") == [262, 262, 260]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bpe:
    return coder(tmp_path_factory.mktemp("merges"))


@given(st.text())
def test_every_text_comes_back(made, text):
    assert made.decode(made.encode(text)) == text


def test_a_word_without_an_end_is_encoded_in_pieces(made):
    text = "re" * 100_000
    assert made.encode(text) == [260] * 100_000


@pytest.mark.parametrize("line", ["a", "a b c", "zz top", ""])
def test_a_line_that_is_no_pair_of_known_symbols_is_named(line):
    Path("m.txt").write_text(f"a b\n{line}\nab c\n", encoding="utf-8")
    if not line:
        assert len(Bpe(Path("m.txt"))) == 258
        return
    with pytest.raises(DataError, match=rf"m.txt:2: '{line}' is no pair of known symbols"):
        Bpe(Path("m.txt"))


def test_a_language_model_learns_from_symbols():
    coder()
    Path("poem.txt").write_text("the rein in the rain, then the train\n" * 20, encoding="utf-8")
    source = Text(path=Path("poem.txt"), merges=Path("merges.txt"), length=8)
    source.check()
    samples, whole = source.open("train"), coder().encode(Path("poem.txt").read_text(encoding="utf-8"))
    inputs, targets = samples.fetch(torch.arange(2))
    assert (samples.classes, samples.input_shape) == (264, (8,))
    assert inputs.view(-1).tolist() == whole[:16]
    assert targets.view(-1).tolist() == whole[1:17]
    assert int(source.open("test").symbols.max()) < 264
    with pytest.raises(DataError, match=r"poem.txt: symbols of the file leave \d+ to the test part"):
        Text(path=Path("poem.txt"), merges=Path("merges.txt"), length=50).open("test")
