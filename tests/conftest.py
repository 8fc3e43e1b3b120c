"""What every test gets: a folder of its own to stand in, a look at what it leaves behind, and workers on demand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from _leaks import Surroundings, adopt_orphans
from _workers import Workers

# no time limit an example (the machine may be busy) and no database (it would be a file in the checkout)
hypothesis.settings.register_profile("volary", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("volary")
adopt_orphans()


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Stand in `tmp_path`; afterwards fail a test that left a process, a thread, shared memory or a file elsewhere."""
    home = Path.cwd()
    os.chdir(tmp_path)
    before = Surroundings.now()
    yield
    os.chdir(home)
    left = before.left_since()
    before.clear()
    if left:
        pytest.fail("this test left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def workers(tmp_path_factory: pytest.TempPathFactory) -> Workers:
    """`workers(n, function, *arguments)`: what `function(rank, n, *arguments)` returned in n joined processes."""
    return Workers(tmp_path_factory.mktemp("workers"))
