"""torch's agent on several machines: what each starts, and what is refused before anything starts."""

from __future__ import annotations

import sys

import pytest

from engine.test_hosts import launch
from volary.engine.hosts import HostsEngine
from volary.engine.remote.messages import RemoteLaunch
from volary.engine.torchrun import AGENT, TorchrunEngine
from volary.errors import SettingError


@pytest.mark.parametrize("node", ["-oProxyCommand=x", "alpha:0", ""])
def test_node_that_is_no_machine_is_refused(node):
    with pytest.raises(SettingError, match=r"nodes has .*; accepted: machines as ssh has them"):
        TorchrunEngine(nodes=(node,))


def test_too_few_slots_are_refused_without_asking_a_machine():
    engine = TorchrunEngine(nodes=("alpha", "beta:2"))
    assert engine.check(4) == "strategy.workers is 4, and the machines have 3 slots: add machines, or slots (name:4)"


def test_workers_of_each_agent_follow_each_other_also_where_they_join_a_run():
    engine = HostsEngine(hosts=("alpha:2", "beta"))
    assert engine._shares(launch(3, first=1), in_a_row=True) == [("alpha", [1, 2]), ("beta", [3])]


def test_an_agent_is_told_its_workers_and_what_it_cannot_know_of_the_others():
    order = RemoteLaunch(
        role="worker", command=["w"], variables={}, numbers=[2, 3], world_size=4, node=1, folder="/", launcher=AGENT
    )
    place = {"VOLARY_FIRST": "2", "VOLARY_WORLD_SIZE": "4"}
    assert order.commands() == {2: ([sys.executable, "-m", "volary.elastic_agent", "2", "w"], place)}
