"""What codecs cost here is measured once, and found again by later runs."""

from __future__ import annotations

import json

import pytest

from volary.codec import ROOM as CODECS
from volary.exchange.choice import work_times as measuring
from volary.exchange.choice.tables import codecs_of
from volary.exchange.choice.work_times import work_times
from volary.run.machine.kept_figures import path_of


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "ROWS", 16)


def test_each_codec_is_measured_once_on_a_machine_and_only_if_it_is_asked_for(monkeypatch):
    first = work_times(codecs_of(CODECS.load("auto")(allow=("fp16",))))
    assert set(first.codecs) == {"fp16"}
    assert first.codecs["fp16"] >= 0 and first.product >= 0 and first.byte >= 0
    monkeypatch.setattr(measuring, "_product_s", pytest.fail)
    monkeypatch.setattr(measuring, "_byte_s", pytest.fail)
    both = work_times(codecs_of(CODECS.load("auto")(allow=("fp16", "bf16"))))
    assert set(both.codecs) == {"fp16", "bf16"} and both.codecs["fp16"] == first.codecs["fp16"]
    monkeypatch.setattr(measuring, "_codec_s", pytest.fail)
    assert work_times(codecs_of(CODECS.load("auto")(allow=("fp16", "bf16")))) == both


def test_figures_of_other_machines_and_software_are_not_taken_and_stay(monkeypatch):
    path = path_of("codecs.json")
    path.parent.mkdir()
    path.write_text(json.dumps({"another": {"product": -1.0, "byte": -1.0}}))
    assert work_times({}).product >= 0
    assert len(json.loads(path.read_text())) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"here": {"byte": "much"}}', "\x00"])
def test_a_damaged_file_is_measured_anew(text, caplog):
    path_of("codecs.json").parent.mkdir()
    path_of("codecs.json").write_text(text)
    assert work_times({}).byte >= 0
    assert "is ignored, as it cannot be read" in caplog.text


def test_where_nothing_can_be_kept_it_is_measured_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert work_times({}).product >= 0
