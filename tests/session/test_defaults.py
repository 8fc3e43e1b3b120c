"""Whether a run's setting is what its plug-in has by itself."""

import pytest

from volary.monitor.outline import settings_in
from volary.session import Session
from volary.session.pages.defaults import is_default

BASE = {"network": "lenet", "data": {"source": "digits"}}


@pytest.mark.parametrize(
    ("strategy", "setting", "expected"),
    [
        ({"consistency": "backup"}, "strategy.consistency.k", True),
        ({"consistency": {"name": "backup", "k": 1}}, "strategy.consistency.k", False),
        ({"consistency": "local"}, "strategy.consistency.period", True),  # settled: it is written as 8
        ({"consistency": {"name": "local", "period": 4}}, "strategy.consistency.period", False),
        ({"codec": "topk"}, "strategy.codec.ratio", True),
        ({"codec": {"name": "topk", "ratio": 0.5}}, "strategy.codec.ratio", False),
        ({"exchange": "allreduce"}, "strategy.exchange.route", True),
        ({"workers": 1}, "strategy.workers", False),  # of no plug-in: everybody has it
        ({}, "strategy.nothing.such", False),
    ],
)
def test_a_setting_of_a_plugin_is_compared_with_what_its_name_alone_gives(tmp_path, strategy, setting, expected):
    file = tmp_path / "session.yaml"
    file.write_text(Session(**BASE, strategy={"workers": 2} | strategy).to_yaml())
    assert is_default(setting, settings_in(file)) == expected
