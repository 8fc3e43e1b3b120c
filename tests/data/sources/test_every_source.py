"""Promises of each source, by listing the room: a new file is tested the moment it exists."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from volary.data.sources import ROOM

PAGE = Path(__file__).parents[3] / "docs" / "data.md"


@pytest.mark.parametrize("name", ROOM.names())
def test_source_has_a_row_in_the_docs(name):
    assert f"| [`{name}`](#{name}) |" in PAGE.read_text()


@pytest.mark.parametrize("name", ROOM.names())
def test_each_setting_of_a_source_is_named_in_its_section(name):
    section = PAGE.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    missing = [field.name for field in dataclasses.fields(ROOM.load(name)) if field.name not in section]
    assert missing == []


@pytest.mark.parametrize("name", ROOM.names())
def test_source_is_a_frozen_dataclass_of_settings(name):
    source = ROOM.load(name)
    assert source.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(source))
    assert {"check", "count", "open"} <= set(dir(source))


def test_settings_and_checks_import_nothing_heavy():
    code = (
        "import sys; from volary.data.sources import ROOM; import volary.data.datasets.user_source, volary.data.idle\n"
        "loaded = {name: ROOM.load(name) for name in ROOM.names()}\n"
        "loaded['digits']().check(); loaded['synthetic']().check()\n"
        "print(sorted({'torch', 'numpy', 'PIL'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout.strip() == "[]"
