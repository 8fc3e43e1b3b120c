"""Many text files: tokenised once, mapped, packed, and no target across two documents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from volary.data.batching.padding import IGNORED
from volary.data.data_names import DataNames, agreeing
from volary.data.records import tokenised
from volary.data.sources.documents import Documents
from volary.errors import DataError, SettingError

TEXTS = {"a.txt": "abcab", "deep/b.txt": "ba", "deep/c.md": "no", "e.txt": "cc", "z.txt": "abc"}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def source(folder: Path, **more) -> Documents:
    return Documents(
        **{"folder": folder / "corpus", "tokens": folder / "tokens", "length": 3, "validation": 0.25, **more}
    )


def test_documents_follow_one_another_and_nothing_is_predicted_across_them(corpus):
    one = source(corpus)
    one.check()
    samples = one.open("train")
    assert samples.class_names == ("a", "b", "c", tokenised.END)
    assert (samples.symbols.tolist(), samples.classes) == ([0, 1, 2, 0, 1, 3, 1, 0, 3, 2, 2, 3], 4)
    inputs, targets = samples.fetch(torch.arange(len(samples)))
    assert inputs.tolist() == [[0, 1, 2], [0, 1, 3], [1, 0, 3]]
    assert targets.tolist() == [[1, 2, 0], [1, 3, IGNORED], [0, 3, IGNORED]]
    assert [part.shape for part in samples.fetch(torch.arange(0))] == [(0, 3), (0, 3)]
    assert one.open("test").symbols.tolist() == [0, 1, 2, 3]
    known = DataNames(("c", tokenised.END, "b", "a"), 4)
    renumbered = agreeing(samples, known, "the data", "the run")
    assert renumbered.fetch(torch.tensor([1]))[0].tolist() == [[3, 2, 1]]
    assert renumbered.fetch(torch.tensor([1]))[1].tolist() == [[2, 1, IGNORED]]


def test_tokens_are_made_once_and_anew_when_a_file_changes(corpus, monkeypatch):
    read = []
    monkeypatch.setattr(tokenised, "read_text", lambda path, accepted: read.append(path.name) or path.read_text())
    first = source(corpus).open("train")
    assert isinstance(first.symbols, np.memmap)
    assert first.symbols.dtype == np.uint16
    made = list(read)
    assert sorted({*made}) == ["a.txt", "b.txt", "e.txt", "z.txt"]
    source(corpus).open("train"), source(corpus).open("test")
    assert read == made
    (corpus / "corpus" / "z.txt").write_text("abd")
    os.utime(corpus / "corpus" / "z.txt", ns=(1, 1))
    assert "d" in source(corpus).open("train").class_names
    assert first.symbols[:3].tolist() == [0, 1, 2], "who has mapped those before keeps them"


def test_tokens_that_are_not_whole_are_made_anew(corpus):
    expected = source(corpus).open("train").symbols.tolist()
    (corpus / "tokens" / "tokens.json").write_text("{")
    (corpus / "tokens" / "symbols.bin").write_bytes(b"")
    assert source(corpus).open("train").symbols.tolist() == expected


@pytest.mark.slow  # two processes that import torch
def test_workers_that_come_at_once_have_the_same_tokens(corpus):
    code = (
        "from pathlib import Path; from volary.data.sources.documents import Documents; "
        "one = Documents(folder=Path('corpus'), tokens=Path('tokens'), length=3, validation=0.25); "
        "print(one.open('train').symbols.tolist())"
    )
    command = [sys.executable, "-c", code]
    both = [subprocess.Popen(command, cwd=corpus, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=300)[0].strip() for one in both]
    assert said == [str(source(corpus).open("train").symbols.tolist())] * 2


def test_pairs_of_bytes_are_encoded_document_by_document(corpus):
    (corpus / "merges.txt").write_text("a b\n")
    samples = source(corpus, merges=corpus / "merges.txt").open("train")
    assert (samples.classes, samples.class_names) == (258, ())
    assert samples.symbols[:4].tolist() == [256, 66, 256, 257]


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"length": 0}, SettingError, "length is 0; accepted: 1 or more time steps"),
        ({"validation": 1.0}, SettingError, "validation is 1.0; accepted: above 0, below 1"),
        ({"files": "/x"}, SettingError, "files is '/x'; accepted: a pattern below folder"),
        ({"files": "*.rst"}, DataError, "has no file *.rst; accepted: text files in UTF-8"),
        ({"files": "c.md"}, DataError, "1 files leave none to the test part (validation is 0.25)"),
        (
            {"length": 9},
            DataError,
            "the test part has 4 symbols, ends of documents included; accepted: at least length",
        ),
    ],
)
def test_what_gives_no_sample_is_refused(corpus, settings, error, says):
    with pytest.raises(error, match=re.escape(says)):
        one = source(corpus, **settings)
        one.check()
        one.open("test")


def test_a_file_that_is_no_text_is_refused_with_its_line(corpus):
    (corpus / "corpus" / "e.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"e.txt:2: has the byte 0xff, which is not UTF-8"):
        source(corpus).open("train")
