"""docs/extending.md: its files, put into a copy of Volary by a stranger, are found, checked, trained with and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import volary
from docs._pages import CHECKOUT, blocks

PAGE = CHECKOUT / "docs" / "extending.md"
FILE = re.compile(r"# ([\w/]+\.py)\n")
SESSION = """
network: softmax
data: {source: digits, batch_size: 32}
train: {epochs: 3}
"""


class Copy:
    """Volary in another folder, where the page's files can be put."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        home = Path(volary.__file__).parent
        shutil.copytree(home, folder / "src" / "volary", ignore=shutil.ignore_patterns("__pycache__"))
        for block in blocks(PAGE):
            if block.language == "python":
                self.add(block.text)
        (self.work / "session.yaml").write_text(SESSION)

    def add(self, text: str) -> Path:
        """A file of the page; its first line says where it goes."""
        named = FILE.match(text)
        assert named, text
        path = self.folder / "src" / "volary" / named[1]
        assert not path.exists()
        path.write_text(text)
        return path

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src")}
        return subprocess.run(
            [sys.executable, "-m", "volary", *arguments],
            cwd=self.work, env=environment, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


def shown() -> list[str]:
    """The page's command, as a shell would read it."""
    import shlex

    (block,) = (block for block in blocks(PAGE) if block.language == "sh")
    return shlex.split(block.text)[1:]


@pytest.mark.slow  # tests/test_plugins.py and each room have a file of a user; these train
def test_all_files_train_together_and_the_verb_says_where(copy):
    said = copy(*shown(), "run.name=mine")
    assert said.returncode == 0, said.stderr
    found = copy("show", "mine")
    assert "star" in found.stdout and "top5" in found.stdout
    lies = copy("where", "mine")
    assert lies.stdout.strip() == str((copy.work / "runs" / "mine").resolve()), lies.stderr


@pytest.mark.slow  # trains
def test_an_exchange_and_a_partition_of_one_s_own_train_together(copy):
    strategy = "strategy={workers: 2, exchange: around, partition: by_parameter}"
    said = copy("train", "session.yaml", "run.name=shares", strategy)
    assert said.returncode == 0, said.stderr
    assert "a ring: each worker gets the sums of its share" in copy("show", "shares").stdout


SUITES = {
    "half_float": "codec/test_every_codec.py",
    "star": "comm/routes",
    "pairs": "consistency/test_every_model.py",
    "by_parameter": "partition/test_every_partition.py",
    "stripes": "data/sources/test_every_source.py",
    "top5": "network/test_metrics.py",
    "maxout": "network/layers/test_every_kind.py",
    "nice": "engine/test_every_engine.py",
}


@pytest.mark.slow  # suites that `make test` runs over what there is
@pytest.mark.parametrize("name", SUITES)
def test_each_file_passes_its_folders_tests_up_to_its_rows_in_the_docs(copy, name):
    chosen = f"{name} and not docs and not section"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-o", f"pythonpath={copy.folder / 'src'} tests", "-k", chosen, f"tests/{SUITES[name]}"),
        ],
        cwd=CHECKOUT, env=os.environ | {"PYTHONPATH": str(copy.folder / "src")},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


SUBCLASS = "from volary.{room}._base import {base}\n\nclass Idle({base}):\n    pass\n\n{constant} = Idle\n"
LACKING = {
    "codec": (
        "'Nothing.'\n",
        "strategy.codec=idle",
        "volary.codec.idle has no CODEC, which names the plug-in of that file",
    ),
    "comm/routes": (
        SUBCLASS.format(room="comm.routes", base="RoutePlugin", constant="ROUTE"),
        *(
            "strategy.exchange={name: allreduce, route: idle}",
            "volary.comm.routes.idle lacks build; see RoutePlugin in",
        ),
    ),
    "exchange": (
        SUBCLASS.format(room="exchange", base="Exchange", constant="EXCHANGE"),
        *("strategy.exchange=idle", "volary.exchange.idle lacks check, count, equal, lacks; see Exchange in"),
    ),
    "partition": (
        SUBCLASS.format(room="partition", base="Partition", constant="PARTITION"),
        *("strategy.partition=idle", "volary.partition.idle lacks lacks, mesh, needs, part; see Partition in"),
    ),
    "network/losses": (
        SUBCLASS.format(room="network.losses", base="Loss", constant="LOSS"),
        *("loss=idle", "volary.network.losses.idle lacks build; see Loss in"),
    ),
    "network/layers": (
        SUBCLASS.format(room="network.layers", base="LayerKind", constant="LAYER"),
        *("network={layers: [idle]}", "volary.network.layers.idle lacks build, shapes; see LayerKind in"),
    ),
    "network/metrics": (
        SUBCLASS.format(room="network.metrics", base="Metric", constant="METRIC"),
        *(
            "loss.metric=idle",
            "volary.network.metrics.idle lacks figures, higher_is_better, outputs, rows, sums; see Metric in",
        ),
    ),
}


@pytest.mark.parametrize("room", LACKING)
def test_one_that_lacks_something_is_refused_by_check(copy, room):
    text, setting, sentence = LACKING[room]
    path = copy.add(f"# {room}/idle.py\n{text}")
    try:
        said = copy("check", "session.yaml", setting)
        assert said.returncode == 2
        assert sentence in said.stderr
    finally:
        path.unlink()
