"""README's accuracy holds: every strategy that a newcomer can name trains the session of `volary init`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.conftest import commands_in, shell_in
from volary.session import Choice
from volary.session.starter import starter

LEAST = 0.95
FOUR = "strategy.workers=4"
SERVED = f"{FOUR} strategy.exchange=server strategy.consistency="
ALLOWED = "'strategy.codec={name: auto, allow: [onebit, int8]}'"


def _names(room: str) -> list[str]:
    return Choice(f"volary.{room}").open().names()


STRATEGIES = [
    f"{FOUR} optimizer.lr=0.1",
    ALLOWED,
    f"{FOUR} {ALLOWED}",
    "strategy.codec=onebit",
    *[f"{FOUR} strategy.codec={name}" for name in _names("codec")],
    *[f"{FOUR} strategy.exchange={name}" for name in _names("exchange") if name != "server"],
    *[f"{FOUR} strategy.consistency={name}" for name in ("local", "gossip", "elastic", "hogwild")],
    *[f"{SERVED}{name}" for name in _names("consistency") if name != "gossip"],
]


@pytest.mark.slow  # half a minute each; tests/test_examples.py trains the same session with two workers, always
@pytest.mark.timeout(700)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_trains_the_starter_to_95_percent(strategy: str, tmp_path: Path) -> None:
    commands_in(tmp_path)
    (tmp_path / "session.yaml").write_text(starter())
    seldom = "'evaluate.every=10 epochs' checkpoint.every=never"
    said = shell_in(tmp_path, f"volary train session.yaml --json {strategy} {seldom}", at_most_s=600)
    assert said.status == 0, said.err
    assert json.loads(said.out)["metrics"]["accuracy"] >= LEAST, said.err
