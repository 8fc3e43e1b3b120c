"""`volary predict`: a trained run, and what it says of data without targets."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from _once import once
from docs.conftest import commands_in, shell_in
from volary import Result
from volary.errors import BadInput

KINDS = ("ant", "bee", "cat")


def _trained(folder: Path) -> None:
    commands_in(folder)
    generator = torch.Generator().manual_seed(1)
    kinds = torch.arange(60) % 3
    places = torch.randn(60, 2, generator=generator) + 3 * kinds.unsqueeze(1)
    rows = [f"{x:.4f},{y:.4f},{KINDS[kind]}" for (x, y), kind in zip(places.tolist(), kinds.tolist(), strict=True)]
    (folder / "t.csv").write_text("x,y,kind\n" + "\n".join(rows) + "\n")
    (folder / "new.csv").write_text("x,y\n" + "\n".join(row.rpartition(",")[0] for row in rows[:7]) + "\n")
    (folder / "s.yaml").write_text(
        "network: softmax\ndata: {source: {name: csv, train: t.csv, test: t.csv, target: kind}, batch_size: 6}\n"
        "optimizer: {name: sgd, lr: 0.3}\ntrain: {steps: 40}\nevaluate: {every: never}\n"
        "run: {name: kinds}\n"
    )
    said = shell_in(folder, "volary train s.yaml --quiet")
    assert said.status == 0, said.err


@pytest.fixture
def kinds(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Result:
    """The run `kinds` in the current folder, with the 7 rows of new.csv to predict from."""
    made = once(tmp_path_factory, "kinds", _trained)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    session = tmp_path / "runs" / "kinds" / "session.yaml"
    session.write_text(session.read_text().replace(str(made.with_suffix(".draft")), str(tmp_path)))
    return Result.of("kinds")


def outputs(result: Result) -> np.ndarray:
    """The network's outputs for new.csv, as anybody would compute them."""
    tables = [np.loadtxt(name, delimiter=",", skiprows=1, usecols=(0, 1)) for name in ("new.csv", "t.csv")]
    inputs = (tables[0] - tables[1].mean(0)) / tables[1].std(0)
    with torch.no_grad():
        return result.module(torch.tensor(inputs, dtype=torch.float32)).numpy()


def test_each_format_has_the_probabilities_of_all_classes_by_their_names(kinds, volary):
    wanted = torch.tensor(outputs(kinds)).softmax(1).numpy()
    for name in ("a.csv", "a.jsonl", "a.npy", "a.parquet"):
        said = volary("predict", "kinds", "new.csv", "--output", name)
        assert (said.status, said.out[:24]) == (0, f"wrote {name}: 7 rows, up to"[:24])
    rows = list(csv.DictReader(Path("a.csv").read_text().splitlines()))
    assert [row["class"] for row in rows] == [KINDS[number] for number in wanted.argmax(1)]
    found = np.array([[float(row[f"p_{kind}"]) for kind in KINDS] for row in rows])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_array_equal(np.load("a.npy"), found.astype(np.float32))
    lines = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    assert [line["class"] for line in lines] == [row["class"] for row in rows]
    assert lines[0]["probabilities"]["bee"] == np.load("a.npy")[0, 1]
    parquet = pytest.importorskip("pyarrow.parquet").read_table("a.parquet").to_pylist()
    assert [(row["class"], row["p_cat"]) for row in parquet] == [
        (line["class"], line["probabilities"]["cat"]) for line in lines
    ]


@pytest.mark.slow  # tests/train/predicting has shares of rows
def test_three_workers_write_seven_rows_once_each_and_in_order_whoever_starts_them(kinds, volary):
    for workers, engine in ((1, "local"), (3, "local"), (2, "torchrun")):
        words = ("--workers", workers, "--engine", engine, "--batch-size", 1, "--top", 2, "--json")
        said = json.loads(volary("predict", "kinds", "new.csv", "--output", f"{workers}.csv", *words).out)
        assert (said["rows"], said["unreadable"], said["batch_size"]) == (7, 0, 1)
    assert Path("3.csv").read_text() == Path("2.csv").read_text() == Path("1.csv").read_text()
    assert Path("1.csv").read_text().splitlines()[0] == "input,class_1,probability_1,class_2,probability_2"
    assert not [path for path in Path().glob(".*") if "predict" in path.name]


def test_from_python_values_come_back_and_a_tensor_is_given_to_the_network_as_it_is(kinds):
    found = kinds.predict("new.csv")
    np.testing.assert_allclose(found.values, torch.tensor(outputs(kinds)).softmax(1).numpy(), rtol=1e-5)
    assert found.labels == [KINDS[number] for number in found.values.argmax(1)]
    tensor = torch.tensor([[0.5, -1.0], [2.0, 2.0]])
    *_, layer = (name for name, _ in kinds.module.named_children())
    with torch.no_grad():
        np.testing.assert_allclose(kinds.predict(tensor, layer=layer).values, kinds.module(tensor).numpy(), rtol=1e-5)
    with pytest.raises(BadInput, match="workers=1, or a file"):
        kinds.predict(tensor, workers=2)


def test_a_run_predicts_where_its_data_is_not_there_and_with_other_settings(kinds, volary):
    Path("t.csv").unlink()
    for name, settings in (("a.npy", []), ("b.npy", ["data.source.standardise=false"])):
        assert volary("predict", "kinds", "new.csv", *settings, "--output", name).status == 0
    assert np.abs(np.load("a.npy") - np.load("b.npy")).max() > 0.01


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["new.csv", "-o", "a.txt"], "--output is a.txt; accepted: a new file that ends in .csv, .jsonl, .npy or"),
        (["new.csv", "-o", "t.csv"], "t.csv exists already"),
        (["no.csv", "-o", "a.csv"], "no.csv: there is no such file or folder"),
        (["new.csv", "-o", "a.csv", "--layer", "fc9"], "layer: unknown name 'fc9'"),
        (["new.csv", "-o", "a.npy", "--top", "2"], "--top: a .npy file has the values alone"),
        (["new.csv", "-o", "a.csv", "--workers", "2", "--engine", "locl"], "unknown name 'locl'; did you mean 'local'"),
        (["new.csv", "-o", "a.csv", "--workers", "0"], "workers is 0; accepted: a whole number, 1 or more"),
        (["new.csv", "-o", "a.csv", "--top", "4"], "top is 4; accepted: 0 to 3, as there are so many classes"),
        (["new.csv", "t.csv", "-o", "a.csv"], "t.csv: accepted: one INPUT, then settings; several files are read from"),
        (["new.csv", "-o", "a.csv", "--checkpoint", "3"], "--checkpoint is '3'; accepted: best, last, or one of"),
    ],
)
def test_what_cannot_be_predicted_is_refused_and_leaves_nothing(kinds, volary, words, sentence):
    before = sorted(Path().glob("*"))
    said = volary("predict", "kinds", *words)
    assert said.status == 2
    assert sentence in said.err
    assert sorted(Path().glob("*")) == before
    assert not list(Path().glob(".*.part"))


OWN = """
import torch, volary
from net import Net
worker = volary.init()
model = worker.distribute(Net())
worker.restore(model=model)
worker.save(model=model)
"""


@pytest.mark.slow
def test_the_network_of_a_loop_of_ones_own_predicts_by_its_name(tmp_path):
    commands_in(tmp_path)
    Path("net.py").write_text("import torch\ndef Net():\n    torch.manual_seed(3)\n    return torch.nn.Linear(4, 2)\n")
    Path("loop.py").write_text(OWN)
    inputs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.save("x.npy", inputs)
    said = shell_in(tmp_path, "volary launch run.name=mine loop.py && volary predict mine x.npy -o no.csv")
    assert said.status == 2
    assert "accepted: network=path/file.py:Net" in said.err
    line = "volary predict mine x.npy network=net.py:Net --output y.npy --workers 2"
    assert shell_in(tmp_path, line).status == 0, said.err
    torch.manual_seed(3)
    with torch.no_grad():
        wanted = torch.nn.Linear(4, 2)(torch.tensor(inputs)).numpy()
    np.testing.assert_allclose(np.load("y.npy"), wanted, rtol=1e-5)
    line = "volary predict mine x.npy network=net.py:Net loss=cross_entropy --output y.csv"
    assert shell_in(tmp_path, line).status == 0
    assert Path("y.csv").read_text().startswith("input,class,probability,p_0,p_1\n0,")
