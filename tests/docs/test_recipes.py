"""Every recipe is a whole session file that trains, on small made-up data of the format that it names."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from PIL import Image

from docs._pages import CHECKOUT, Block, blocks
from docs.conftest import Shell
from volary.cli.command.main import run

PAGE = CHECKOUT / "docs" / "recipes.md"
CLASSES = ("airplane", "automobile")
SHORT = "train.steps=2 schedule=constant data.batch_size=8"


def name_of(block: Block) -> str:
    return block.text.partition("\n")[0].removeprefix("# ")


RECIPES = [block for block in blocks(PAGE) if block.language == "yaml"]


@pytest.fixture
def data(tmp_path: Path) -> None:
    """The files that recipes read, small, where they read them; and the reader's Python files."""
    folder = tmp_path / "data"
    (folder / "fashion-mnist").mkdir(parents=True)
    for part in ("train", "t10k"):
        images = struct.pack(">IIII", 0x803, 40, 28, 28) + bytes(40 * 28 * 28)
        labels = struct.pack(">II", 0x801, 40) + bytes(number % 10 for number in range(40))
        (folder / "fashion-mnist" / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / "fashion-mnist" / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    for part in ("train", "test"):
        for kind in CLASSES:
            place = folder / "cifar10" / part / kind
            place.mkdir(parents=True)
            for number in range(8):
                Image.new("RGB", (32, 32), (number, 2, 3)).save(place / f"{number}.png")
    (folder / "shakespeare.txt").write_text("To be, or not to be, that is the question.\n" * 200)
    for block in blocks(PAGE):
        if block.language in ("yaml", "python"):
            (tmp_path / name_of(block)).write_text(block.text)


def test_every_recipe_is_a_file_with_a_name() -> None:
    assert len(RECIPES) == 4
    assert all(name_of(recipe).endswith(".yaml") for recipe in RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_is_found_faultless(recipe: Block, data: None, capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["check", name_of(recipe), "data.batch_size=8"])
    assert status == 0, capfd.readouterr().err


@pytest.mark.slow  # four trainings of seconds
@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
def test_a_recipe_trains(recipe: Block, data: None, shell: Shell) -> None:
    said = shell(f"volary train {name_of(recipe)} {SHORT}")
    assert said.status == 0, said.out + said.err
