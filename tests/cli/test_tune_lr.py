"""`volary tune-lr`: a run of its own whose rate grows, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volary.run.directory import RunDirectory
from volary.session import Session

SESSION = "network: lenet\ndata: {source: digits, batch_size: 64}\noptimizer: {name: sgd, lr: 5.0}\n"


@pytest.fixture
def file() -> str:
    Path("session.yaml").write_text(SESSION)
    return "session.yaml"


@pytest.mark.slow  # a run of its own
def test_a_rate_is_found_and_drawn_with_a_run_of_its_own_and_the_session_stays_as_it_is(volary, file):
    said = volary("tune-lr", file, "--from", "1e-4", "--to", "100", "--steps", "40", "--svg", "rates.svg", "--json")
    assert said.status == 0, said.err
    found = json.loads(said.out)
    assert found["run"].endswith("runs/tune-lr-1")
    assert found["rates"][0] == pytest.approx(1e-4)
    assert 1e-4 < found["suggested"] < 10
    assert len(found["losses"]) < 40, "it diverges on the way to a rate of 100"
    assert Path("rates.svg").read_text().startswith("<svg ")
    assert Path(file).read_text() == SESSION
    used = Session.read(RunDirectory(Path("runs/tune-lr-1")).session)
    assert (used.train.steps, used.optimizer.lr) == (40, 100.0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "1", "--to", "0.1"], "--from is 1 and --to is 0.1; accepted: above 0, and the second above the "),
        (["--from", "0"], "--from is 0 and --to is 10; accepted: above 0, and the second above the first"),
        (["--steps", "3"], "3 is not in the range x>=10"),
        (["data.batch_sise=3"], "data.batch_sise: unknown; did you mean 'batch_size'?"),
    ],
)
def test_what_cannot_be_tested_is_refused_and_leaves_nothing(volary, file, words, sentence):
    said = volary("tune-lr", file, *words)
    assert said.status == 2
    assert sentence in said.err
    assert not Path("runs").exists()
