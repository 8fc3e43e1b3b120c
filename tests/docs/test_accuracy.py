"""What README says of accuracy: every strategy that a newcomer can name trains the session of `volary init`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.conftest import shell_in
from volary.session import Choice, starter

LEAST = 0.95
FOUR = "strategy.workers=4"
SERVED = f"{FOUR} strategy.exchange=server strategy.consistency="
ALLOWED = "'strategy.exchange={name: auto, allow: [onebit, int8]}'"


def _names(room: str) -> list[str]:
    return Choice(f"volary.{room}").open().names()


STRATEGIES = [
    f"{FOUR} optimizer.lr=0.1",
    ALLOWED,
    f"{FOUR} {ALLOWED}",
    "strategy.codec=onebit",
    *[f"{FOUR} strategy.codec={name}" for name in _names("codec")],
    *[f"{FOUR} strategy.exchange={name}" for name in _names("exchange") if name != "server"],
    *[f"{SERVED}{name}" for name in _names("consistency")],
]
QUICK = ["strategy.codec=onebit"]  # the one that depends most on a session that forgives


def _parameter(strategy: str) -> object:
    return pytest.param(strategy, marks=[] if strategy in QUICK else [pytest.mark.slow])  # half a minute each


@pytest.mark.parametrize("strategy", [_parameter(strategy) for strategy in STRATEGIES])
def test_every_strategy_trains_the_starter_to_95_percent(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "session.yaml").write_text(starter())
    seldom = "'evaluate.every=10 epochs' checkpoint.every=never strategy.give_up_after_s=120"
    said = shell_in(tmp_path, f"volary train session.yaml --json {strategy} {seldom}")
    assert said.status == 0, said.err
    assert json.loads(said.out)["metrics"]["accuracy"] >= LEAST, said.err
