"""Figures of examples: on MNIST and tiny-shakespeare, which are beside the checkout, and on a table that is made up.

`plain.py` is run: that two workers learn the same is asked in test_example_pairs.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLES, DATA = CHECKOUT / "examples", CHECKOUT.parent / "shared" / "data"
TEXT = DATA / "tiny-shakespeare" / "input.txt"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]  # up to half a minute of a processor each


def there(path: Path) -> str:
    if not path.exists():
        pytest.skip(f"there is no {path.relative_to(CHECKOUT.parent)} beside the checkout")
    return str(path)


def said(*command: str) -> str:
    found = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr
    return found.stdout


def numbers(name: str, pattern: str, *arguments: str) -> list[float]:
    found = re.search(pattern, said(str(EXAMPLES / name / "plain.py"), *arguments))
    assert found is not None
    return [float(one) for one in found.groups()]


def test_a_deep_belief_network_tells_95_percent_of_digits_after_10000_of_them():
    (accuracy,) = numbers("belief_network", r"accuracy ([\d.]+)", there(DATA / "mnist"))
    assert accuracy >= 0.95


def test_an_autoencoder_with_a_sparse_code_restores_a_third_of_what_was_blanked_out_of_digits():
    pattern = r"error ([\d.]+), of what was blanked out ([\d.]+); mean of the code ([\d.]+)"
    error, blanked, code = numbers("autoencoder", pattern, there(DATA / "mnist"))
    assert error < blanked * 2 / 3
    assert code < 0.45


def test_word_vectors_tell_neighbours_that_they_have_not_learnt_from_words_that_are_drawn():
    (told,) = numbers("word_vectors", r"told from drawn words: ([\d.]+)", there(TEXT))
    assert told >= 0.6


def test_the_two_columns_of_six_that_count_have_most_of_the_importance():
    shares = numbers("tabular", "columns: " + ", ".join([r"([\d.]+)"] * 6))
    assert min(shares[1], shares[4]) > 2 * max(shares[0], *shares[2:4], shares[5])


def test_an_lstm_with_truncated_back_propagation_writes_a_character_in_three_bits_after_one_epoch():
    text = f"data.source.path={there(TEXT)}"
    found = said("-m", "volary", "train", str(EXAMPLES / "lstm.yaml"), "--json", "train.epochs=1", text)
    assert json.loads(found)["metrics"]["bits_per_character"] < 3.0
