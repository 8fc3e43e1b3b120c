"""The script and the style that the package ships are those that the sources in `page/` make."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SOURCES = CHECKOUT / "page"
STATIC = CHECKOUT / "src" / "volary" / "page" / "static"


def of_sources() -> str:
    """As page/build.mjs makes it."""
    files = [*(SOURCES / "src").rglob("*"), SOURCES / "package-lock.json", SOURCES / "build.mjs"]
    names = sorted(file.relative_to(SOURCES).as_posix() for file in files if file.is_file())
    found = hashlib.sha256()
    for name in names:
        found.update(f"{name}\n".encode() + (SOURCES / name).read_bytes())
    return found.hexdigest()


@pytest.mark.parametrize("name", ["page.js", "page.css"])
def test_the_built_file_is_of_these_sources(name):
    built = re.search(r"from ([0-9a-f]{64})", (STATIC / name).read_text(encoding="utf-8"))
    assert built, f"{name} does not say what it was built from"
    assert built[1] == of_sources(), f"{name} is stale: cd page && npm ci && npm run build"


def test_nothing_is_loaded_from_elsewhere():
    for name in ("index.html", "page.js", "page.css"):
        text = (STATIC / name).read_text(encoding="utf-8")
        found = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not {one for one in found if not one.startswith("http://www.w3.org/")}, found
        assert "@import" not in text


def test_the_script_is_small_enough_for_every_report_to_bring_it():
    assert sum((STATIC / name).stat().st_size for name in ("page.js", "page.css")) < 180_000
