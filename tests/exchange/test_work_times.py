"""Times that codecs take here are measured by some runs, and found by all later ones."""

from __future__ import annotations

import json

import pytest

from volary.codec import ROOM as CODECS
from volary.exchange.choice import work_times as measuring
from volary.exchange.choice.tables import codecs_of
from volary.exchange.choice.work_times import RUNS, work_times
from volary.run.machine.kept_figures import path_of


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "ROWS", 16)


def test_each_codec_is_measured_by_some_runs_and_only_if_it_is_asked_for(monkeypatch):
    for _ in range(RUNS):
        assert set(work_times(codecs_of(CODECS.load("auto")(allow=("fp16",)))).codecs) == {"fp16"}
    monkeypatch.setattr(measuring, "_product_s", pytest.fail)
    monkeypatch.setattr(measuring, "_byte_s", pytest.fail)
    for _ in range(RUNS):
        both = work_times(codecs_of(CODECS.load("auto")(allow=("fp16", "bf16"))))
        assert set(both.codecs) == {"fp16", "bf16"}
    monkeypatch.setattr(measuring, "_codec_s", pytest.fail)
    assert work_times(codecs_of(CODECS.load("auto")(allow=("fp16", "bf16")))) == both


def test_a_codec_that_encodes_matrices_is_also_measured_with_small_ones():
    found = work_times(codecs_of(CODECS.load("auto")(allow=("fp16", "powersgd"))))
    assert set(found.matrices) == {"powersgd"}
    assert found.matrices["powersgd"] > 0


def test_what_was_measured_while_the_machine_was_busy_counts_until_it_was_not(monkeypatch):
    found = []
    for figure in (9.0, 4.0, 1.0, 3.0, 0.5):  # more runs than measure
        monkeypatch.setattr(measuring, "_product_s", lambda figure=figure: figure)
        found.append(work_times({}).product)
    assert found == [9.0, 4.0, 1.0, 1.0, 1.0]


def test_figures_of_other_machines_and_software_are_not_taken_and_stay(monkeypatch):
    path = path_of("codecs.json")
    path.parent.mkdir()
    path.write_text(json.dumps({"another": {"product": [-1.0], "byte": [-1.0]}}))
    assert work_times({}).product >= 0
    assert len(json.loads(path.read_text())) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"here": {"byte": 0.5}}', "\x00"])
def test_a_damaged_file_is_measured_anew(text, caplog):
    path_of("codecs.json").parent.mkdir()
    path_of("codecs.json").write_text(text)
    assert work_times({}).byte >= 0
    assert "is ignored, as it cannot be read" in caplog.text


def test_where_nothing_can_be_kept_it_is_measured_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert work_times({}).product >= 0
