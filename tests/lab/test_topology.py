import re

import pytest

from volary.errors import SettingError
from volary.lab import Lab
from volary.lab.network.distance import Distance
from volary.lab.network.topology import LabTopology


def test_hosts_are_spread_over_groups_in_blocks():
    topology = LabTopology.of(6, groups=3)
    assert [topology.group(host) for host in range(6)] == [0, 0, 1, 1, 2, 2]


def test_every_host_has_an_address_of_its_own():
    topology = LabTopology.of(200)
    assert len({topology.address(host) for host in range(200)}) == 200


def test_the_limit_between_two_hosts_is_the_slowest_link_on_the_way():
    topology = LabTopology.of(4, "1gbit", slow={1: "50mbit"}, groups=2, trunk="200mbit")
    assert topology.limit(0, 1) == 50_000_000
    assert topology.limit(2, 3) == 10**9
    assert topology.limit(0, 3) == 200_000_000
    assert LabTopology.of(2).limit(0, 1) is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hosts": 0}, "hosts is 0; accepted: 1 to 200"),
        ({"hosts": 201}, "hosts is 201"),
        ({"hosts": 3, "groups": 2}, "groups is 2 with 3 hosts"),
        ({"hosts": 2, "trunk": "1gbit"}, "trunk is the link between groups"),
        ({"hosts": 3, "rates": ["1gbit"]}, "rates names 1 rates for 3 hosts"),
        ({"hosts": 1, "rate": "1gbit", "rates": ["1gbit"]}, "both rate and rates"),
        ({"hosts": 2, "slow": {2: "1mbit"}}, "slow names host 2; accepted: 0 to 1"),
        ({"hosts": 2, "rate": "slow"}, "rate is 'slow'"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_made(settings, sentence):
    with pytest.raises(SettingError, match=sentence):
        Lab(**settings)


@pytest.mark.parametrize(
    ("round_trip", "loss", "told"),
    [
        ("50", None, "round trip is '50'; accepted: 0ms to 10s, as in 50ms"),
        ("11s", None, "round trip is '11s'"),
        ("-1ms", None, "round trip is '-1ms'"),
        (None, "5", "loss is '5'; accepted: 0% and more, below 100%, as in 5%"),
        (None, "100%", "loss is '100%'"),
    ],
)
def test_a_distance_that_is_none_is_refused(round_trip, loss, told):
    with pytest.raises(SettingError, match=re.escape(told)):
        Distance.of(round_trip, loss)


def test_a_distance_is_read_as_it_is_written():
    assert Distance.of(None, None) is None
    assert Distance.of("50ms", "5%") == Distance(0.05, 0.05)
    assert Distance.of("0.5s", None) == Distance(0.5, 0.0)
