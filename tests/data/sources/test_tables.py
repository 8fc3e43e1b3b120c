"""Data that stays in memory: CIFAR's binary files, arrays, tables, and several sources as one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from volary.data.feed import Feed
from volary.data.sources.arrays import Arrays
from volary.data.sources.cifar import Cifar
from volary.data.sources.csv import CsvTable
from volary.data.sources.images import Images
from volary.data.sources.mix import Mix
from volary.data.sources.synthetic import Synthetic
from volary.errors import DataError, SettingError
from volary.session import Session

CSV = "height,species,width\n1,iris,4\n3,rose,4\n\n5,iris,4\n"


def cifar_rows(count: int, labels: int) -> bytes:
    rows = np.zeros((count, labels + 3072), dtype=np.uint8)
    rows[:, labels - 1] = np.arange(count)
    rows[:, 0] = np.arange(count) % 20 if labels == 2 else rows[:, 0]
    rows[:, labels:] = np.arange(count)[:, None]
    rows[:, -1] = 255
    return rows.tobytes()


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    for name in ("train", "test"):
        (tmp_path / f"{name}.csv").write_text(CSV)
    return {"train": tmp_path / "train.csv", "test": tmp_path / "test.csv"}


def test_cifar_10_reads_all_batches(tmp_path):
    for number in (1, 2):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(cifar_rows(10, 1))
    (tmp_path / "test_batch.bin").write_bytes(cifar_rows(4, 1))
    source = Cifar(folder=tmp_path)
    source.check()
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.tensor([3, 13]))
    assert (len(samples), source.count("test"), samples.classes, targets.tolist()) == (20, 4, 10, [3, 3])
    assert inputs.shape == (2, 3, 32, 32)
    assert (255 * inputs[0, 0, 0, 0]).round() == 3
    assert inputs[0, 2, 31, 31] == 1


@pytest.mark.parametrize(("coarse", "classes", "expected"), [(False, 100, [21]), (True, 20, [1])])
def test_cifar_100_has_fine_and_coarse_classes(tmp_path, coarse, classes, expected):
    for name in ("train", "test"):
        (tmp_path / f"{name}.bin").write_bytes(cifar_rows(30, 2))
    samples = Cifar(folder=tmp_path, coarse=coarse).open("train")
    assert (samples.classes, samples.fetch(torch.tensor([21]))[1].tolist()) == (classes, expected)


def test_what_is_beside_the_files_of_cifar_is_said(tmp_path):
    for name in ("data_batch_1.bin", "test_batch.bin", "data_batch_2.bin.part", "train.bin"):
        (tmp_path / name).write_bytes(cifar_rows(2, 1))
    (tmp_path / "data_batch_1 (2).bin").write_bytes(cifar_rows(2, 1))
    samples = Cifar(folder=tmp_path).open("train")
    assert samples.remarks == (
        f"{tmp_path}: 3 files are not read: data_batch_1 (2).bin, data_batch_2.bin.part, train.bin",
    )
    assert (len(samples), samples.class_names) == (2, ())


@pytest.mark.parametrize(
    ("labels", "coarse", "file", "count"),
    [
        (1, False, "batches.meta.txt", 10),
        (2, False, "fine_label_names.txt", 100),
        (2, True, "coarse_label_names.txt", 20),
    ],
)
def test_the_classes_of_cifar_are_called_as_the_file_beside_the_data_says(tmp_path, labels, coarse, file, count):
    for name in ("data_batch_1.bin", "test_batch.bin") if labels == 1 else ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(cifar_rows(2, labels))
    names = [f"class {number}" for number in range(count)]
    (tmp_path / file).write_text("\n".join(names) + "\n\n")
    source = Cifar(folder=tmp_path, coarse=coarse)
    assert source.open("train").class_names == source.open("test").class_names == tuple(names)
    (tmp_path / file).write_text("\n".join(names[1:]))
    with pytest.raises(DataError) as problem:
        source.open("train")
    has = f"{tmp_path}/{file}: has {count - 1} names"
    assert str(problem.value) == f"{has}; accepted: {count}, one a line, or no such file"


def test_cifar_of_another_length_is_refused_before_a_run(tmp_path):
    (tmp_path / "data_batch_1.bin").write_bytes(cifar_rows(2, 1)[:-1])
    with pytest.raises(DataError, match=r"data_batch_1.bin: 6145 bytes; accepted: a multiple of 3073"):
        Cifar(folder=tmp_path).check()


def test_a_label_that_cifar_has_not_is_named_with_its_file(tmp_path):
    for number in (1, 2):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(cifar_rows(9 + number, 1))
    with pytest.raises(DataError) as problem:
        Cifar(folder=tmp_path).open("train")
    assert str(problem.value) == f"{tmp_path}/data_batch_2.bin: sample 10 has the label 10; accepted: 0 to 9"


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_arrays_are_samples(tmp_path, packed):
    images = np.arange(6 * 4, dtype=np.uint8).reshape(6, 1, 2, 2)
    for split in ("train", "test"):
        if packed:
            np.savez(tmp_path / f"{split}.npz", x=images, y=np.arange(6) % 3)
        else:
            np.save(tmp_path / f"{split}_x.npy", images)
            np.save(tmp_path / f"{split}_y.npy", np.arange(6) % 3)
    source = Arrays(folder=tmp_path, inputs="x", targets="y", mean=0.5, std=0.5)
    source.check()
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.tensor([5, 0]))
    torch.testing.assert_close(inputs[0].view(-1), torch.arange(20.0, 24) / 127.5 - 1)
    assert (samples.classes, targets.tolist(), samples.input_shape) == (3, [2, 0], (1, 2, 2))


def test_targets_of_floats_are_for_regression(tmp_path):
    for split in ("train", "test"):
        np.savez(tmp_path / f"{split}.npz", inputs=np.ones((3, 2)), targets=np.ones((3, 1)))
    inputs, targets = (samples := Arrays(folder=tmp_path).open("test")).fetch(torch.arange(3))
    assert (inputs.dtype, targets.dtype, samples.classes) == (torch.float32, torch.float32, None)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"inputs": np.zeros((3, 1)), "targets": np.zeros(2)}, "3 inputs and 2 targets"),
        ({"inputs": np.array([{}]), "targets": np.zeros(1)}, "cannot be read (Object arrays cannot be loaded"),
        ({"x": np.zeros((3, 1)), "targets": np.zeros(3)}, "has no array 'inputs'; it has x, targets"),
        ({"inputs": np.array(["a"]), "targets": np.zeros(1)}, "accepted: rows of numbers"),
    ],
)
def test_arrays_that_are_no_samples_are_refused(tmp_path, arrays, sentence):
    np.savez(tmp_path / "train.npz", **arrays)
    with pytest.raises(DataError) as problem:
        Arrays(folder=tmp_path).open("train")
    assert str(problem.value).startswith(f"{tmp_path / 'train.npz'}: ")
    assert sentence in str(problem.value)


def test_an_npz_that_unpacks_to_many_times_its_size_is_refused_before_memory_is_taken_for_it(tmp_path):
    rows = {"inputs": np.zeros((17, 2**20), dtype=np.uint8), "targets": np.zeros(17, dtype=np.int64)}
    np.savez_compressed(tmp_path / "train.npz", **rows)
    with pytest.raises(DataError) as problem:
        Arrays(folder=tmp_path).open("train")
    assert str(problem.value) == (
        f"{tmp_path / 'train.npz'}: unpacks to more than 16 MiB, and to more than 100 times its size; "
        "accepted: an .npz that is not compressed (numpy.savez)"
    )
    np.savez(tmp_path / "train.npz", **rows)
    assert len(Arrays(folder=tmp_path).open("train")) == 17
    np.savez_compressed(tmp_path / "train.npz", inputs=rows["inputs"][:2], targets=rows["targets"][:2])
    assert len(Arrays(folder=tmp_path).open("train")) == 2


def test_a_table_is_standardised_and_its_names_are_classes(tables):
    source = CsvTable(**tables, target="species")
    source.check()
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.arange(3))
    spread = (8 / 3) ** 0.5
    torch.testing.assert_close(inputs, torch.tensor([[-2 / spread, 0.0], [0, 0], [2 / spread, 0]]))
    assert (samples.classes, targets.tolist()) == (2, [0, 1, 0])


def test_a_table_of_a_regression_gives_numbers(tables):
    source = CsvTable(**tables, target="height", columns=("width",), kind="number", standardise=False)
    inputs, targets = source.open("test").fetch(torch.arange(3))
    assert (inputs.tolist(), targets.tolist()) == ([[4.0]] * 3, [[1.0], [3.0], [5.0]])


@pytest.mark.parametrize(
    ("text", "settings", "sentence"),
    [
        (CSV, {"target": "colour"}, "train.csv: has no column 'colour'; it has height, species, width"),
        (CSV, {"target": "height"}, "train.csv:2: species is 'iris'; accepted: a number, as 1.5"),
        ("a,species\n1,x\n2\n", {}, "train.csv:3: has 1 values; its header has 2"),
        ("a,species\n", {}, "train.csv: empty: it has a header alone; accepted: at least one sample"),
        ("species\nx\n", {}, "train.csv: has no column beside 'species'; accepted: at least one"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_line(tables, text, settings, sentence):
    tables["train"].write_text(text)
    with pytest.raises(DataError) as problem:
        CsvTable(**(tables | {"target": "species"} | settings)).open("train")
    assert str(problem.value) == f"{tables['train'].parent}/{sentence}"


def blobs(samples: int, seed: int) -> Synthetic:
    return Synthetic(shape=(2,), samples=samples, seed=seed, classes=3)


def test_a_mix_without_weights_has_every_sample_once():
    mixed = Mix(sources=(blobs(7, 1), blobs(5, 2))).open("train")
    alone = [blobs(7, 1).open("train").inputs, blobs(5, 2).open("train").inputs]
    inputs, _ = mixed.fetch(torch.arange(12).flip(0))
    torch.testing.assert_close(inputs.flip(0), torch.cat(alone), rtol=0, atol=0)


def test_weights_are_shares_of_an_epoch_and_the_rest_comes_in_the_next_one():
    mixed = Mix(sources=(blobs(30, 1), blobs(10, 2)), weights=(1, 3)).open("train")
    large, small = (blobs(n, seed).open("train").inputs for n, seed in ((30, 1), (10, 2)))
    assert len(mixed) == 40
    counts = torch.zeros(2, 30)
    for epoch in range(3):
        inputs, _ = mixed.fetch(torch.arange(40), epoch)
        for which, part in enumerate((large, small)):
            same = (inputs.unsqueeze(1) == part.unsqueeze(0)).all(2)
            counts[which, : len(part)] += same.sum(0)
            assert int(same.sum()) == (10, 30)[which]
    assert counts[0].tolist() == [1.0] * 30  # three epochs are one pass
    assert counts[1, :10].tolist() == [9.0] * 10  # each is three passes


def test_a_mix_resumes_in_the_middle_of_an_epoch():
    mixed = Mix(sources=(blobs(30, 1), blobs(10, 2)), weights=(1, 3)).open("train")
    feed, resumed = Feed(mixed, 7), Feed(mixed, 7)
    for _ in range(9):
        next(feed)
    resumed.restore(feed.state())
    for _ in range(9):
        torch.testing.assert_close(next(feed).inputs, next(resumed).inputs, rtol=0, atol=0)


def test_sources_of_different_shapes_are_refused():
    with pytest.raises(DataError, match=r"mix: source 1 has inputs \(3,\) torch.float32, source 0 \(2,\)"):
        Mix(sources=(blobs(3, 1), Synthetic(shape=(3,)))).open("train")


def test_tables_of_a_mix_have_their_columns_in_one_order(tmp_path):
    (tmp_path / "one.csv").write_text("label,a,b\n0,1,2\n")
    (tmp_path / "other.csv").write_text("label,b,a\n0,2,1\n")
    one, other = (
        CsvTable(train=tmp_path / name, test=tmp_path / name, target="label", standardise=False)
        for name in ("one.csv", "other.csv")
    )
    with pytest.raises(DataError, match=r"mix: source 1 has the columns b, a, source 0 a, b; accepted: the same"):
        Mix(sources=(one, other)).open("train")
    other = dataclasses.replace(other, columns=("a", "b"))
    inputs, _ = Mix(sources=(one, other)).open("train").fetch(torch.arange(2))
    assert inputs.tolist() == [[1.0, 2.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [((1.0,), "weights has 1 numbers; accepted: 2, one a source"), ((1.0, 0.0), "weights has 0; accepted: above 0")],
)
def test_weights_that_do_not_fit_are_refused(weights, sentence):
    with pytest.raises(SettingError) as problem:
        Mix(sources=(blobs(3, 1), blobs(3, 2)), weights=weights)
    assert str(problem.value) == sentence


def test_a_session_with_a_mix_reads_back_from_what_it_writes(tmp_path):
    source = {"name": "mix", "sources": ["digits", {"name": "synthetic", "shape": [1, 28, 28]}], "weights": [1, 2]}
    session = Session(network="lenet", data={"source": source})
    path = tmp_path / "session.yaml"
    path.write_text(session.to_yaml())
    assert "- {name: digits, size: 28, border: 6}" in path.read_text()
    assert Session.read(path) == session


def test_what_a_mix_of_images_needs_next_is_decoded_ahead(tmp_path):
    for name, shade in (("dark", 10), ("light", 200)):
        for split in ("train", "test"):
            for number in range(24):
                path = tmp_path / name / split / "a" / f"{number:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.full((4, 4, 3), shade + number, dtype=np.uint8)).save(path)
    parts = tuple(Images(folder=tmp_path / name, cache_mb=0) for name in ("dark", "light"))
    samples = Mix(sources=parts, weights=(1, 1)).open("train")
    feed, seen = Feed(samples, 8), []
    feed.limit(2 * feed.steps_per_epoch)
    for step, batch in enumerate(feed):
        seen += (255 * batch.inputs[:, 0, 0, 0]).round().int().tolist()
        if step == 1:
            assert all(len(part._ahead) > 0 for part in samples.parts)
    assert sorted(seen) == sorted(2 * [shade + number for shade in (10, 200) for number in range(24)])
