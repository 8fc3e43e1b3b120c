"""`volary data`: what a session reads from storage, packed, checked and summed up."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SESSION = "network: lenet\ndata: {source: {name: images, folder: photos, channels: 1}}\n"


@pytest.fixture
def session() -> Path:
    for split, count in (("train", 8), ("test", 4)):
        for number in range(count):
            path = Path("photos") / split / "ab"[number % 2] / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            Image.fromarray(np.full((28, 28), 20 * number, np.uint8)).save(buffer, "JPEG")
            path.write_bytes(buffer.getvalue())
    Path("s.yaml").write_text(SESSION)
    return Path("s.yaml")


def test_a_pack_trains_as_its_files_do(volary, session):
    said = volary("data", "pack", session, "packed")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[0].startswith("packed/train: 8 samples, ")
    assert volary("data", "check", session, "data.source={name: packed, folder: packed, channels: 1}").status == 0
    said = volary("check", session, "data.source={name: packed, folder: packed, channels: 1}")
    assert "# samples: 8" in said.err
    said = volary("data", "pack", session, "packed")
    assert (said.status, said.err) == (2, "packed/train: is packed already; accepted: another folder, or none\n")


def test_damaged_samples_are_named_and_listed(volary, session):
    for number in (1, 6):
        path = Path("photos") / "train" / "ab"[number % 2] / f"{number}.jpg"
        path.write_bytes(path.read_bytes()[:-2])
    said = volary("data", "check", session, "--list", "damaged.txt")
    assert said.status == 2
    lines = said.out.splitlines()
    assert lines[:2] == ["train: 8 samples, 2 damaged", "test: 4 samples, 0 damaged"]
    here = Path.cwd() / "photos" / "train"
    assert lines[2:] == [f"{here}/a/6.jpg: Premature end of JPEG file", f"{here}/b/1.jpg: Premature end of JPEG file"]
    assert Path("damaged.txt").read_text() == f"{here}/a/6.jpg\n{here}/b/1.jpg\n"
    assert volary("data", "check", session, "--list", "damaged.txt").err.startswith("damaged.txt exists already;")


def test_stats_are_what_the_settings_take(volary, session):
    found = json.loads(volary("data", "stats", session, "--json").out)
    assert found["train"]["classes"] == {"0": 4, "1": 4}
    assert found["train"]["mean"] == [pytest.approx(70 / 255, abs=0.005)]
    assert found["test"]["shapes"]["largest"] == [28, 28]
    assert "mean" in volary("data", "stats", session).out


def test_data_in_memory_is_refused(volary, session):
    said = volary("data", "pack", session, "packed", "data.source=digits")
    expected = "s.yaml: data.source is kept in memory; accepted: a source of files, shards or records\n"
    assert (said.status, said.err) == (2, expected)


def test_a_foreign_mistake_shows_its_traceback_with_debug(volary, session):
    assert "Traceback" in volary("data", "pack", session, "packed", "data.source=digits", "--debug").err


def test_what_of_a_table_is_not_read_is_said_by_check_and_before_a_run(volary):
    Path("train.csv").write_text("label,a,b\n0,1,2\n1,,4\n1,5,6\n")
    Path("test.csv").write_text("b,note,label,a\n2,7,0,1\n4,8,1,3\n")
    Path("s.yaml").write_text(
        "network: softmax\ndata:\n"
        "  source: {name: csv, train: train.csv, test: test.csv, target: label, missing: skip}\n  batch_size: 2\n"
    )
    here = Path.cwd()
    remarks = [
        f"{here}/train.csv:3: is the first of the rows that lack a value and are skipped: 1 of 3",
        f"{here}/test.csv: 1 column is not read: note",
    ]
    said = volary("data", "check", "s.yaml")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines() == [
        "train: 2 samples, 0 damaged",
        remarks[0],
        "test: 2 samples, 0 damaged",
        remarks[1],
    ]
    said = volary("check", "s.yaml")
    assert said.status == 0
    for remark in remarks:
        assert f"# warning: {remark}\n" in said.err
    said = volary("train", "s.yaml", "train.steps=1")
    assert said.status == 0
    for remark in remarks:
        assert f"warning: step 0: {remark}\n" in said.out + said.err


def test_what_is_not_read_is_told_by_a_check_and_before_a_run(volary, session):
    here = Path.cwd() / "photos"
    (here / "train" / "a" / "notes.txt").write_text("three cats")
    (here / "test" / "cover.jpg").write_bytes(b"")
    frames = [Image.new("L", (28, 28), value) for value in (1, 2)]
    frames[0].save(here / "train" / "a" / "9.gif", save_all=True, append_images=frames[1:])
    opaque = np.full((28, 28, 2), 255, np.uint8)
    Image.fromarray(opaque).save(here / "train" / "b" / "8.png")
    Image.fromarray(opaque // 2).save(here / "train" / "b" / "9.png")
    said = volary("data", "check", session)
    beside = f"{here}/train: not read: 1 file with another ending (a/notes.txt)"
    outside = f"{here}/test: not read: 1 file outside of class folders (cover.jpg)"
    assert (said.status, said.out.splitlines()) == (
        0,
        [
            "train: 11 samples, 0 damaged",
            beside,
            f"train: 1 sample with further frames or pages, of which only the first is read: {here}/train/a/9.gif",
            "train: 1 sample with transparency, which is not read (colours are as stored): " + f"{here}/train/b/9.png",
            "test: 4 samples, 0 damaged",
            outside,
        ],
    )
    warnings = [
        line
        for line in volary("check", session, "data.batch_size=4").err.splitlines()
        if line.startswith("# warning: ")
    ]
    transparency = (  # of the last sample, which is tried
        "the train part has samples with transparency, which is not read (colours are as stored); "
        "`volary data check` names them"
    )
    assert warnings == [f"# warning: {text}" for text in (beside, transparency, outside)]
    packed = volary("data", "pack", session, "packed").out.splitlines()
    assert [packed[0], packed[2]] == [beside, outside]


def test_a_folder_is_looked_at_without_a_session_which_is_written_then(volary, session):
    said = volary("data", "look", "photos", "--session", "new.yaml")
    assert said.status == 0, said.err
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines == ["kind images", "train 8 samples", "test 4 samples", "", "class samples", "a 4", "b 4"]
    assert said.err == "wrote new.yaml; next: volary train new.yaml\n"
    assert "# samples: 8" in volary("check", "new.yaml").err
    assert volary("data", "look", "photos", "--session", "new.yaml").err.startswith("new.yaml exists already;")
    found = json.loads(volary("data", "look", "photos/train", "--json").out)
    assert (found["parts"], found["classes"]) == ({"train": 8}, {"a": 4, "b": 4})
    assert [one["name"] for one in found["pictures"]] == ["a/0.jpg", "a/2.jpg", "a/4.jpg", "a/6.jpg",
                                                          "b/1.jpg", "b/3.jpg", "b/5.jpg", "b/7.jpg"]  # fmt: skip
    assert all(one["grey"] for one in found["pictures"])
    Path("undivided.yaml").write_text(found["session"])
    assert "# samples: 6" in volary("check", "undivided.yaml").err


def test_the_columns_of_a_table_are_shown_with_statistics_and_a_session_of_its_target(volary):
    rows = [f"{number},{number % 3},{'' if number == 4 else number / 2},{'ab'[number % 2]}" for number in range(40)]
    Path("table.csv").write_text("\n".join(["one,two,three,kind", *rows]) + "\n")
    lines = [line.split() for line in volary("data", "look", "table.csv").out.splitlines()]
    assert ["one", "number", "0", "40", "0", "19.5", "11.54", "39"] in lines
    assert ["three", "number", "1", "39"] in [line[:4] for line in lines]
    assert ["kind", "(target)", "text", "0", "2"] in lines
    for target in ("kind", "two", "one"):
        said = volary("data", "look", "table.csv", "--target", target, "-o", f"{target}.yaml")
        assert said.status == 0, said.err
        assert "# samples: 32" in (checked := volary("check", f"{target}.yaml")).err, checked.err


def test_a_table_of_encoded_images_is_shown_as_pictures(volary, session):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = sorted(Path("photos/train").rglob("*.jpg"))
    column = {"image": [{"bytes": one.read_bytes(), "path": one.name} for one in files]}
    Path("shards").mkdir()
    parquet.write_table(arrow.table(column | {"label": [one.parent.name for one in files]}), "shards/0.parquet")
    found = json.loads(volary("data", "look", "shards", "--json").out)
    assert (found["classes"], len(found["pictures"]), found["pictures"][0]["of_class"]) == ({"a": 4, "b": 4}, 8, "a")
    assert [(one["name"], one["kind"]) for one in found["columns"]] == [("image", "image"), ("label", "text")]
    Path("shards.yaml").write_text(found["session"])
    assert "# samples: 6" in (checked := volary("check", "shards.yaml")).err, checked.err


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "there is no such file or folder; accepted: "),
        (lambda path: path.mkdir(), "is no data that Volary knows; accepted: "),
        (lambda path: path.write_text("text"), "is no data that Volary knows; accepted: "),
    ],
)
def test_what_is_no_data_is_refused_with_what_is_accepted(make, why, volary):
    make(Path("it"))
    said = volary("data", "look", "it")
    assert (said.status, said.err.startswith(f"{Path.cwd()}/it: {why}")) == (2, True), said.err


def test_data_that_cannot_be_trained_on_says_why(volary, session):
    def why(path: str, *options: str) -> str:
        said = volary("data", "look", path, *options, "-o", "none.yaml")
        assert said.status == 2
        assert not Path("none.yaml").exists()
        return said.err

    shutil.copytree("photos/train/a", "alone/a")
    assert "has one class alone, 'a'; accepted: a folder for each class" in why("alone")
    assert "has images, but no class folders; accepted: " in why("alone/a")
    for path in Path("alone").rglob("*.jpg"):
        path.write_bytes(b"no image")
    assert "none of the images that were looked at can be read" in why("alone")
    Path("a.csv").write_text("name,kind\nx,a\ny,b\n")
    assert "has no column of numbers beside 'kind'" in why("a.csv")
    assert "has no column 'none'; it has name, kind" in why("a.csv", "--target", "none")
    Path("a.csv").write_text("one,kind\n1,a\n2,\n")
    assert "the column 'kind' has rows without a value" in why("a.csv")
    Path("a.csv").write_text("one,kind\n1,a\n2,a\n")
    assert "the column 'kind' has one value alone" in why("a.csv")
    Path("a.csv").write_text("one,kind\n1,a\n2\n")
    assert "row 2 has 1 values; its header has 2" in why("a.csv")
    Path("a.csv").write_text("one\n1\n")
    assert "has 1 columns; accepted: one to predict, and one or more" in why("a.csv")
    Path("a.csv").write_bytes(b"one,two\n\xff,1\n")
    assert "UTF-8" in why("a.csv")
