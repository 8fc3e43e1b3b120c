"""Data that nobody has a session for is looked at: sounds, arrays and text; and the session that each gets."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from volary.data.looking.look import Look, look
from volary.errors import DataError
from volary.session.spec import Session


def clip(path: Path, rate: int = 8000, seconds: float = 0.25) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.sin(np.arange(round(rate * seconds))) * 9000
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())


def proposed(found: Look) -> Session:
    """The session that is proposed, which reads as one."""
    Path("proposed.yaml").write_text(found.session)
    return Session.read("proposed.yaml")


def test_of_sounds_the_classes_and_spectrograms_are_shown_and_the_session_has_their_rate_and_length():
    for word in ("yes", "no ü"):
        for number in range(3):
            clip(Path("words", word, f"{number}.wav"), seconds=0.25 + 0.125 * number)
    Path("words", "yes", "broken.wav").write_bytes(b"RIFF")
    found = look(Path("words").absolute())
    assert (found.kind, found.parts, found.classes) == ("sounds", {"train": 7}, {"no ü": 3, "yes": 4})
    assert found.pictures[0].size == "0.25 s at 8,000 a second"
    assert "broken.wav: cannot be read" in found.remarks[0]
    source = proposed(found).data.source
    assert (source.rate, source.seconds, source.train) == (8000, 0.5, ".")
    clip(Path("words", "yes", "9.wav"), rate=16000)
    found = look(Path("words").absolute())
    assert found.session == ""
    assert found.remarks[-1].endswith("has sounds of 8,000 and 16,000 samples a second; accepted: all of one rate")


@pytest.mark.parametrize(
    ("arrays", "target", "classes"),
    [
        ({"inputs": np.ones((6, 4)), "targets": np.arange(6) % 3}, "targets", {"0": 2, "1": 2, "2": 2}),
        ({"x": np.ones((6, 3, 8, 8), np.uint8), "label": np.arange(6) % 2}, "label", {"0": 3, "1": 3}),
        ({"x": np.ones((6, 4)), "y": np.ones((6, 2))}, "y", {}),
        ({"x": np.ones((6, 4)), "y": np.ones(6)}, "y", {}),
    ],
)
def test_of_arrays_each_has_its_shape_and_statistics_and_targets_are_found(arrays, target, classes):
    Path("points").mkdir()
    np.savez("points/train.npz", **arrays)
    found = look(Path("points/train.npz").absolute())
    assert (found.kind, found.parts, found.target, found.classes) == ("arrays", {"train": 6}, target, classes)
    assert [one.name for one in found.columns] == list(arrays)
    assert found == look(Path("points").absolute())
    assert proposed(found).data.source.targets == target
    assert len(found.pictures) == (6 if target == "label" else 0)


def test_arrays_in_files_of_their_own_and_with_a_test_part_are_found(tmp_path):
    for part, count in (("train", 6), ("test", 2)):
        np.save(f"{part}_inputs.npy", np.ones((count, 28, 28)))
        np.save(f"{part}_targets.npy", np.arange(count) % 2)
    found = look(tmp_path)
    assert found.parts == {"train": 6, "test": 2}
    assert proposed(found).data.split.validation == 0.0


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        (
            {"inputs": np.ones((6, 4)), "targets": np.ones(5)},
            "has 6 rows of inputs and 5 rows of targets; ",
        ),
        ({"inputs": np.ones((6, 4))}, "has the array 'inputs' alone; accepted: one of inputs, one of targets"),
        ({"inputs": np.array([{}], dtype=object), "targets": np.ones(1)}, "cannot be read .* accepted: a folder with"),
        (
            {"inputs": np.array(["a"]), "targets": np.ones(1)},
            "inputs is <U1 of 1 dimensions; ",
        ),
    ],
)
def test_arrays_that_no_session_reads_are_refused(arrays, why, tmp_path):
    np.savez("train.npz", **arrays)
    with pytest.raises(DataError, match=why):
        look(tmp_path)


def test_values_that_are_no_numbers_are_counted_and_no_session_trains_on_them(tmp_path):
    np.savez("train.npz", inputs=np.where(np.eye(6, 4) > 0, np.nan, 1.0), targets=np.arange(6) % 2)
    found = look(tmp_path)
    assert [one.missing for one in found.columns] == [4, 0]
    assert found.session == ""
    assert found.remarks[-1].endswith("inputs has 4 values that are no numbers; accepted: numbers")


def test_of_text_symbols_and_lines_are_counted_and_a_folder_of_it_is_documents(tmp_path):
    Path("it.txt").write_text("to be\nor not\n" * 100)
    found = look(tmp_path / "it.txt")
    assert (found.kind, found.parts, found.facts["lines"], found.facts["different symbols"]) == ("text", {}, 200, 8)
    assert found.excerpt.startswith("to be\nor")
    assert proposed(found).data.source.path == tmp_path / "it.txt"
    Path("corpus", "deep ü").mkdir(parents=True)
    for number in range(3):
        Path("corpus", "deep ü", f"{number}.txt").write_text("a bear\n")
    found = look(tmp_path / "corpus")
    assert found.facts == {"files": 3, "symbols": 21, "different symbols": 6, "lines": 3}
    assert proposed(found).data.source.folder == tmp_path / "corpus"
    Path("corpus", "deep ü", "9.txt").write_bytes(b"\xff\xfea")
    with pytest.raises(DataError, match="is UTF-16"):
        look(tmp_path / "corpus")
    Path("corpus", "deep ü", "9.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="is not UTF-8; accepted: text in UTF-8"):
        look(tmp_path / "corpus")


@pytest.mark.parametrize(
    ("name", "why"),
    [("empty", "is no data that Volary knows"), ("x.npy", "is not named as a training part is"), ("none", "no such")],
)
def test_what_is_no_data_is_refused_with_what_is(name, why, tmp_path):
    Path("empty").mkdir()
    np.save("x.npy", np.ones(3))
    with pytest.raises(DataError, match=f"{why}.*; accepted: a folder with"):
        look(tmp_path / name)


def test_of_many_samples_that_cannot_be_read_the_first_are_named(tmp_path):
    for number in range(9):
        for name in "ab":
            path = Path("photos", name, f"{number}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"no png")
    found = look(tmp_path / "photos")
    assert [text.partition(": ")[0] for text in found.remarks[:2]] == [
        str(tmp_path / f"photos/a/{n}.png") for n in "01"
    ]
    assert found.remarks[3] == "and 15 more that cannot be read"
    assert found.session == ""
