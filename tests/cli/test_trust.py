"""Code that a session or run of another user's names is not run without being asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitor._made_runs import whole_run

pytestmark = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
SOMEBODY = 54321
EVIL = """
import pathlib, torch
pathlib.Path("imported").touch()
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(16, 4)
"""
SESSION = """
network: evil.py:Net
data: {source: {name: synthetic, shape: [16], classes: 4, samples: 64, kind: blobs}, batch_size: 32}
train: {steps: 2}
"""


@pytest.fixture
def foreign() -> Path:
    """A session file that another user has written, and the network beside it."""
    Path("evil.py").write_text(EVIL)
    Path("session.yaml").write_text(SESSION)
    os.chown("session.yaml", SOMEBODY, -1)
    return Path("session.yaml")


@pytest.mark.parametrize("verb", ["check", "train"])
def test_a_session_of_another_user_is_refused(verb, volary, foreign):
    said = volary(verb, foreign)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"{foreign} belongs to user {SOMEBODY}, and you are root")
    assert said.err.endswith("If you trust whoever wrote it, say so with --trust\n")
    assert not Path("imported").exists()
    assert not Path("runs").exists()


def test_a_session_of_another_user_is_taken_if_the_user_says_so(volary, foreign):
    said = volary("check", "--trust", foreign)
    assert said.status == 0, said.err
    assert Path("imported").exists()


@pytest.mark.parametrize("verb", ["resume", "evaluate", "export", "join"])
@pytest.mark.parametrize("what", ["path", "session"])
def test_a_run_of_another_user_is_refused(verb, what, volary, foreign):
    run = whole_run()
    run.session.write_text(SESSION)
    os.chown(getattr(run, what), SOMEBODY, -1)
    said = volary(verb, run.path)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"{getattr(run, what)} belongs to user {SOMEBODY}, and you are root")
    assert not Path("imported").exists()
