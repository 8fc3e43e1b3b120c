"""From data to a run on the page: which places it reads, what it takes in, what it finds there, drafts of sessions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import anyio
import numpy as np
import pytest
from PIL import Image

from page._asking import Said, Server, served
from volary.data.decoding.images import SUFFIXES as IMAGES
from volary.data.decoding.sound import SUFFIXES as SOUNDS
from volary.data.tables.arrow_file import SUFFIXES as ARROW
from volary.errors import BadInput
from volary.page.making import uploads
from volary.page.making.places import TABLES, DataPlaces
from volary.page.making.uploads import Uploads
from volary.page.overview.sessions import SessionFiles
from volary.page.server.serve import PageServer

COLOURS = {"blue": (50, 80, 200), "red": (200, 60, 50)}


def photos(folder: Path, each: int = 6, side: int = 24) -> Path:
    """A folder of noisy pictures in two colours, each in a folder of its name."""
    random = np.random.default_rng(1)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = np.array(colour) + random.normal(0, 30, (side, side, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture
def home(tmp_path) -> Path:
    """The folder that the page is started in, with data; beside it what the page is not to read."""
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    photos(home / "photos")
    photos(tmp_path / "elsewhere" / "others")
    (home / ".hidden").mkdir()
    (home / ".hidden" / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    (home / "flowers.csv").write_text("width,height,kind\n1,2,rose\n2,3,tulip\n1.5,,rose\n")
    return home


@pytest.fixture
def own(home):
    with served(home / "runs") as server:
        yield server


def post(server: Server, what: str, body: bytes = b"{}", **words: str) -> Said:
    return server.say("POST", f"/api/{what}?{urlencode(words)}", body, Origin=f"http://{server.address}")


def draft(server: Server, text: str, *overrides: str) -> Any:
    said = post(server, "draft", json.dumps({"text": text, "overrides": overrides}).encode())
    assert said.status == 200, said.text
    return said.json


OUTSIDE = [
    "..", "../secret.csv", "photos/../../secret.csv", "/etc/passwd", "/", "{above}/secret.csv", "out", "out/others",
    "link.csv", ".hidden/table.csv", "photos/../.hidden/table.csv", ".", "\0", "a" * 5000, "~/x", "file:///etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("text", OUTSIDE)
def test_nothing_outside_of_the_folder_that_the_page_is_started_in_can_be_looked_at(text, home):
    (home / "out").symlink_to(home.parent / "elsewhere")
    (home / "link.csv").symlink_to(home.parent / "secret.csv")
    (home / "photos" / "more").symlink_to(home.parent / "elsewhere" / "others" / "red")
    places = DataPlaces([home])
    with pytest.raises(BadInput, match="accepted: "):
        places.path(text.format(above=home.parent))


def test_a_data_set_with_a_link_out_of_the_folder_in_it_is_refused_and_one_that_stays_inside_is_not(home):
    places = DataPlaces([home])
    (home / "mine").symlink_to(home / "photos")
    assert places.path("mine") == places.path("photos") == home / "photos"
    (home / "photos" / "red" / "x.png").symlink_to(home.parent / "elsewhere" / "others" / "red" / "0.png")
    with pytest.raises(BadInput, match=r"x\.png: leads out of .*accepted: `volary ui --data`"):
        places.path("photos")
    both = DataPlaces([home, home.parent / "elsewhere"])
    assert both.path("photos") == home / "photos"
    assert both.path(str(home.parent / "elsewhere" / "others"))


def test_a_path_is_completed_with_folders_and_tables_and_nothing_hidden_or_outside(home):
    (home / "out").symlink_to(home.parent / "elsewhere")
    (home / "notes.txt").write_text("")
    places = DataPlaces([home])
    assert places.offered("") == [{"path": str(home), "folder": True}]
    found = [(Path(one["path"]).name, one["folder"]) for one in places.offered(f"{home}/")]
    assert found == [("flowers.csv", False), ("photos", True), ("runs", True)]
    assert [one["path"] for one in places.offered(f"{home}/ph")] == [str(home / "photos")]
    assert [one["path"] for one in places.offered("ph")] == [str(home / "photos")]
    for text in ("../", "/etc/", "/", ".hidden/", f"{home.parent}/"):
        with pytest.raises(BadInput, match="is outside of"):
            places.offered(text)


def test_what_is_dropped_is_written_into_a_new_folder_and_nothing_there_is_changed(own, home):
    assert post(own, "begin", name="cats").json == {"name": "cats", "path": str(home / "uploads" / "cats")}
    assert post(own, "upload", b"\x89PNG", into="cats", name="red/0.png").status == 200
    assert (home / "uploads" / "cats" / "red" / "0.png").read_bytes() == b"\x89PNG"
    said = post(own, "upload", b"other", into="cats", name="red/0.png")
    assert (said.status, "is there already" in said.text) == (400, True)
    assert post(own, "begin", name="cats").json["name"] == "cats-2"
    assert (home / "uploads" / "cats" / "red" / "0.png").read_bytes() == b"\x89PNG"
    left = [path.name for path in (home / "uploads").rglob("*")]
    assert sorted(left) == ["0.png", "cats", "cats-2", "red"]


BAD_NAMES = [
    "../x.png", "a/../../x.png", "/etc/x.png", ".x.png", "a/.b/x.png", "x.py", "x.yaml", "x.pt", "x.pkl", "x.npy", "x",
    "a//x.png", "a\\x.png", "a\0.png", "a\n.png", "é" * 130 + ".png", "a/b/c/d/x.png", "", "x.png/", " x.png", "x.png ",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_file_that_is_no_data_or_leads_elsewhere_is_not_taken(name, own, home):
    post(own, "begin", name="cats")
    before = sorted(home.parent.rglob("*"))
    said = post(own, "upload", b"x", into="cats", name=name)
    assert (said.status, "accepted:" in said.text) == (400, True), said
    for into in ("", "..", "dogs", "cats/..", ".", "/etc"):
        assert post(own, "upload", b"x", into=into, name="x.png").status == 400
    assert sorted(home.parent.rglob("*")) == before


def test_what_is_dropped_is_bounded_and_nothing_of_a_refused_file_stays(home, monkeypatch):
    async def content():
        for _ in range(4):
            yield b"x" * 100

    def receive(name):  # in a thread of its own: in this one a browser's loop may run, of a test before
        with ThreadPoolExecutor(1) as pool:
            pool.submit(anyio.run, into.receive, "many", name, content()).result()

    into = Uploads(home / "uploads")
    assert into.begin("many") == "many"
    monkeypatch.setattr(uploads, "ALL_BYTES", 500)
    receive("a.png")
    with pytest.raises(BadInput, match="many: more than 0 GiB at once; accepted: less"):
        receive("b.png")
    monkeypatch.setattr(uploads, "MOST_FILES", 1)
    with pytest.raises(BadInput, match="more than 1 files at once"):
        receive("c.png")
    monkeypatch.setattr(uploads, "SPARE_BYTES", 2**70)
    monkeypatch.setattr(uploads, "MOST_FILES", 9)
    with pytest.raises(BadInput, match="the disk has less than"):
        receive("c.png")
    assert [path.name for path in (home / "uploads" / "many").iterdir()] == ["a.png"]


def test_a_file_that_says_to_be_larger_than_any_may_be_is_refused_before_it_is_read(own):
    post(own, "begin", name="cats")
    words = urlencode({"into": "cats", "name": "x.png"})
    said = own.say("POST", f"/api/upload?{words}", Origin=f"http://{own.address}", Content_Length=str(2**40))
    assert said.status == 413


def test_the_page_takes_what_the_sources_read():
    assert set(uploads.SUFFIXES) == IMAGES | SOUNDS | set(ARROW) | {".csv", ".tsv", ".npz", ".txt"}
    assert set(TABLES) == {*ARROW, ".csv", ".tsv"}


def test_what_is_in_a_folder_and_in_a_table_is_shown_with_a_session_that_trains_on_it(own, home):
    found = post(own, "look", path="photos").json
    assert (found["kind"], found["classes"], found["parts"]) == ("images", {"blue": 6, "red": 6}, {"train": 12})
    assert [one["of_class"] for one in found["pictures"]] == ["blue"] * 6 + ["red"] * 6
    assert found["pictures"][0]["link"].startswith("data:image/png;base64,")
    assert draft(own, found["session"])["problems"] == []
    found = post(own, "look", path=str(home / "flowers.csv")).json
    assert (found["kind"], found["target"], found["classes"]) == ("table", "kind", {"rose": 2, "tulip": 1})
    assert [(one["name"], one["missing"]) for one in found["columns"]] == [("width", 0), ("height", 1), ("kind", 0)]
    assert draft(own, found["session"])["problems"] == []
    assert post(own, "look", path="flowers.csv", target="width").json["target"] == "width"
    for path, why in (("runs", "is no data that Volary knows"), ("", "path is missing"), ("none", "there is no such")):
        said = post(own, "look", path=path)
        assert (said.status, why in said.text) == (400, True), said


STARTER = """network: lenet  # as Caffe has it
data: {source: digits, batch_size: 64}
optimizer: {name: sgd, lr: 0.01}
train: {steps: 3}
"""


def test_a_change_in_the_form_is_written_into_the_text_and_the_text_fills_the_form(own):
    found = draft(own, STARTER, "optimizer.lr=0.2")
    assert found["problems"] == []
    assert found["text"] == STARTER.replace("0.01", "0.2")
    assert {one["setting"]: one["value"] for one in found["fields"]}["optimizer.lr"] == "0.2"
    again = draft(own, found["text"])
    assert again == found
    (problem,) = draft(own, STARTER, "optimizer.lr=-1")["problems"]
    assert (problem["setting"], problem["sentence"]) == ("optimizer.lr", "is -1; accepted: above 0")
    (problem,) = draft(own, STARTER.replace("0.01", "-1"))["problems"]
    assert problem == {"place": "session.yaml:3:28", "setting": "optimizer.lr", "sentence": "is -1; accepted: above 0"}
    found = draft(own, "network: [")
    assert (found["fields"], found["text"]) == ([], "network: [")
    assert "is not valid YAML" in found["problems"][0]["sentence"]
    said = post(own, "draft", b'{"text": 5}')
    assert (said.status, "Expected `str`" in said.text) == (400, True)


def test_a_value_is_in_the_form_as_it_is_typed_and_reads_back_as_the_same(own):
    typed = {"strategy.interface": "eth 0", "data.cache.memory": "2GB", "run.name": "a-1", "data.cache.path": "/x/y z"}
    found = draft(own, STARTER, *(f"{name}={value}" for name, value in typed.items()))
    values = {one["setting"]: one["value"] for one in found["fields"]}
    assert {name: values[name] for name in typed} == typed
    assert (values["data.cache.disk"], values["evaluate.text.prompt"]) == ("0B", '""')
    again = draft(own, STARTER, *(f"{name}={value}" for name, value in values.items() if "." in name))
    assert again["fields"] == found["fields"]


def test_a_session_that_cannot_be_used_is_refused_in_its_words_and_leaves_no_file(own, home):
    for text, why in ((STARTER.replace("0.01", "-1"), "accepted: above 0"), ("", "is empty")):
        said = post(own, "create", json.dumps({"text": text}).encode())
        assert (said.status, why in said.text) == (400, True), said
    for name in ("../x", "x.yaml", "", ".x", "a/b"):
        said = post(own, "create", json.dumps({"text": STARTER, "name": name}).encode())
        assert (said.status, "is no name of a session" in said.text) == (400, True), said
    late = STARTER.replace("lenet", "none.py:Net")  # what only the command finds
    said = post(own, "create", json.dumps({"text": late}).encode())
    assert (said.status, "none.py" in said.text) == (400, True), said
    assert list(home.parent.rglob("*.yaml")) == []


def test_a_session_is_written_into_a_new_file_and_the_same_text_twice_into_one(home):
    files = SessionFiles(home)
    assert files.written("it", STARTER) == (home / "it.yaml", True)
    assert files.written("it", STARTER) == (home / "it.yaml", False)
    assert files.written("it", STARTER + "\n") == (home / "it-2.yaml", True)
    assert (home / "it.yaml").read_text() == STARTER


def test_a_page_that_is_served_beyond_its_machine_reads_no_data_and_takes_none(home):
    with served(home / "runs", "--host", "0.0.0.0") as server:
        for path in ("begin", "look", "draft", "create", "upload"):
            said = post(server, path, path="photos", name="x")
            assert (said.status, "starts nothing there" in said.text) == (400, True), path
        assert server.say("GET", f"/api/places?path={quote(str(home))}/").status == 400
    assert not (home / "uploads").exists()


def test_a_folder_of_data_that_is_not_there_is_refused(home):
    with pytest.raises(BadInput, match="--data none: there is no such folder; accepted: a folder of data"):
        PageServer(home, data=[Path("none")])


@pytest.mark.parametrize(("path", "words", "why"), [
    ("predict", {"name": "x.py"}, "accepted: .jpg"),
    ("predict", {"name": ""}, "accepted: .jpg"),
    ("export", {"form": "pickle"}, "form is 'pickle'; accepted: safetensors, onnx, pt2"),
    ("export", {}, "form is ''; accepted: "),
])  # fmt: skip
def test_what_a_run_cannot_be_used_for_is_refused_before_a_process_starts(path, words, why, server):
    said = post(server, path, b"x", run="lenet-digits-1", **words)
    assert (said.status, why in said.text) == (400, True), said
    assert post(server, path, b"x", run="../lenet-digits-1", **words).status == 404


def test_a_file_to_predict_is_bounded(server):
    words = urlencode({"run": "lenet-digits-1", "name": "x.png"})
    said = server.say("POST", f"/api/predict?{words}", Origin=f"http://{server.address}", Content_Length=str(2**27))
    assert said.status == 413


def test_many_forms_are_made_at_once_by_a_server_that_has_made_none(own):
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: draft(own, STARTER, f"train.seed={number}"), range(24)))
    assert [one["text"] for one in found] == [STARTER.replace("steps: 3", f"steps: 3, seed: {n}") for n in range(24)]
