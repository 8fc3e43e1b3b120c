"""Fixtures of every test: a folder of its own to stand in, a look at what it leaves behind, and workers on demand."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from _leaks import Surroundings, adopt_orphans, common, left_in_common
from _workers import Workers
from simulation import _seeds

HERE = Path(__file__).resolve().parent
_BEFORE = pytest.StashKey[dict[str, frozenset[Path]]]()

# no time limit an example (the machine may be busy) and no database (it would be a file in the checkout)
hypothesis.settings.register_profile("volary", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("volary")
torch.set_num_threads(1)  # as workers have: of tiny networks, more of them spin, beside what else runs
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # nor do those of processes that tests start
adopt_orphans()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # started in the background (nohup, CI): what tests start and interrupt must not inherit that, as it does no handler
    signal.signal(signal.SIGINT, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    """Without tests that need a GPU, train on the CPU: where one worker would take a GPU, two would not."""
    if "not gpu" in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where tests run in parallel: look at what all of them share."""
    if session.config.pluginmanager.hasplugin("dsession"):
        session.config.stash[_BEFORE] = common()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a parallel run that left something there."""
    before = session.config.stash.get(_BEFORE, None)
    if before is not None and (left := left_in_common(before)):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        print("\nthese tests left behind:", *left, sep="\n")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """In a new checkout, one of the processes that share the tests compiles them first; the others read that."""
    compiled = any((HERE / "train" / "__pycache__").glob("test_*-pytest-*.pyc"))  # the last of the folders
    with Path(__file__).open() as file:
        if not compiled and not sys.dont_write_bytecode and "PYTEST_XDIST_WORKER" in os.environ:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(file, fcntl.LOCK_SH)
            except OSError:  # a network file system that locks nothing: each compiles them
                pass
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Let tests have the same environment: what runs are forked from serves the next ones only in the same."""
    name = os.environ.pop("PYTEST_CURRENT_TEST")
    _seeds.test = pyfuncitem.nodeid
    try:
        return (yield)
    finally:
        os.environ["PYTEST_CURRENT_TEST"] = name


@pytest.fixture(scope="session", autouse=True)
def figures_kept_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Measurements made here are not kept for this user, whose queue and settings are left alone."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Stand in `tmp_path`; afterwards forget the folders it imported from, and fail a test that left
    a process, a thread, shared memory or a file elsewhere.
    """
    home = Path.cwd()
    path = list(sys.path)
    os.chdir(tmp_path)
    before = Surroundings.now()
    yield
    os.chdir(home)
    sys.path[:] = path  # a session puts its folder there, whose files would be found in place of ours
    torch.set_num_threads(1)
    left = before.left_since()
    before.clear()
    if left:
        pytest.fail("this test left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """This test's log, without tasks that a browser of a test before left: asyncio logs them when collected."""
    gc.collect()
    caplog.clear()
    return caplog


@pytest.fixture
def workers(tmp_path_factory: pytest.TempPathFactory) -> Workers:
    """`workers(n, function, *arguments)`: what `function(rank, n, *arguments)` returned in n joined processes."""
    return Workers(tmp_path_factory.mktemp("workers"))
