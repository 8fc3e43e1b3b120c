import pytest
import torch

from volary.data.sources.text import Text
from volary.errors import DataError, SettingError

POEM = "so much depends\r\nupon\n\na red wheel\nbarrow — Ä\n" * 20


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_bytes(POEM.encode())
    return path


def test_targets_are_the_inputs_one_character_on(path):
    samples = Text(path=str(path), length=10).open("train")
    inputs, targets = samples.fetch(torch.tensor([3, 0]))
    letters = samples.vocabulary
    assert "".join(letters[i] for i in inputs[0]) == POEM[30:40]
    assert "".join(letters[i] for i in targets[0]) == POEM[31:41]
    assert "".join(letters[i] for i in inputs[1]) == POEM[:10]
    assert (inputs.shape, inputs.dtype, targets.dtype) == ((2, 10), torch.int64, torch.int64)
    assert samples.input_dtype == torch.int64


def test_vocabulary_is_that_of_the_whole_file_in_both_parts(path):
    source = Text(path=str(path), length=10, validation=0.25)
    source.check()
    train, test = source.open("train"), source.open("test")
    assert train.vocabulary == test.vocabulary == "".join(sorted(set(POEM)))
    assert train.classes == len(set(POEM))
    cut = round(len(POEM) * 0.75)
    assert (len(train), len(test)) == ((cut - 1) // 10, (len(POEM) - cut - 1) // 10)
    assert "".join(test.vocabulary[i] for i in test.fetch(torch.tensor([0]))[0][0]) == POEM[cut : cut + 10]


def test_every_sample_up_to_the_last_can_be_fetched(path):
    samples = Text(path=str(path), length=7).open("test")
    assert samples.fetch(torch.arange(len(samples)))[1].shape == (len(samples), 7)
    assert samples.fetch(torch.arange(0))[0].shape == (0, 7)


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(DataError) as problem:
        Text(path="nowhere.txt").check()
    assert str(problem.value) == "nowhere.txt: there is no such file; accepted: a text file in UTF-8"
    with pytest.raises(DataError) as problem:
        Text(path=str(tmp_path)).check()
    assert str(problem.value) == f"{tmp_path}: not a file; accepted: a text file in UTF-8"
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(DataError) as problem:
        Text(path=str(tmp_path / "empty")).check()
    assert str(problem.value) == f"{tmp_path / 'empty'}: empty (0 bytes); accepted: a text file in UTF-8"


def test_text_too_short_for_one_sample_is_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("a" * 100)
    for look in (Text(path=str(path)).check, lambda: Text(path=str(path)).open("test")):
        with pytest.raises(DataError) as problem:
            look()
        assert str(problem.value) == (
            f"{path}: 100 characters leave 10 to the test part; accepted: at least length + 1 = 65 in each part "
            "(validation is 0.1)"
        )


def test_bytes_that_are_not_utf8_are_named_by_their_place(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"x" * 2000 + "Ä ".encode("latin-1"))
    for look in (Text(path=str(path)).check, lambda: Text(path=str(path)).open("train")):
        with pytest.raises(DataError, match=r"latin1.txt:1: has the byte 0xc4, which is not UTF-8"):
            look()


def test_check_does_not_mind_a_character_across_its_first_block(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * (2**16 - 1) + "Ä".encode() * 5000)
    Text(path=str(path)).check()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"length": 0}, "length is 0; accepted: 1 or more time steps"),
        ({"validation": 1.0}, "validation is 1.0; accepted: above 0, below 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(SettingError) as problem:
        Text(path="x", **settings)
    assert str(problem.value) == sentence
