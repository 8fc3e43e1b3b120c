"""By which address a machine is reached: that of an interface that is named, or of the route."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import psutil  # type: ignore[import-untyped]
import pytest

from volary.errors import BadInput
from volary.run.launch.assignment import Assignment
from volary.run.launch.meeting import Meeting
from volary.run.machine import addresses
from volary.run.machine.addresses import address_of, address_towards, is_this_machine, own_address


def entry(address: str) -> SimpleNamespace:
    return SimpleNamespace(family=socket.AF_INET, address=address)


def test_address_is_that_of_the_interface_that_is_named_and_else_of_the_route():
    loopback = next(
        name
        for name, entries in psutil.net_if_addrs().items()
        if any(entry.address == "127.0.0.1" for entry in entries if entry.family == socket.AF_INET)
    )
    assert own_address(loopback, "192.0.2.1") == address_of(loopback) == "127.0.0.1"
    assert own_address("", "127.0.0.1") == "127.0.0.1"


def test_machine_without_a_default_route_is_known_by_the_address_of_an_interface(monkeypatch):
    def refused(host: str) -> str:
        raise BadInput(f"host {host!r} cannot be reached")

    monkeypatch.setattr(addresses, "address_towards", refused)
    entries = {"lo": [entry("127.0.0.1")], "eth1": [entry("10.0.0.7")]}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: entries)
    assert addresses.address_for_others() == "10.0.0.7"
    del entries["eth1"]
    with pytest.raises(BadInput, match="has no network interface but loopback"):
        addresses.address_for_others()


@pytest.mark.skipif(not socket.has_ipv6, reason="Python was built without IPv6")
def test_loopback_of_ipv6_is_this_machine_and_reached_by_itself():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"::1 is not here: {error}")
    assert is_this_machine("::1")
    assert address_towards("::1") == own_address("", "::1") == "::1"


def test_interface_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(BadInput, match=r"strategy.interface is 'nowhere0'; .* has addresses on .+"):
        address_of("nowhere0")


def test_processes_are_told_the_interface():
    meeting = Meeting("10.0.0.1", 4711, attempt=0, attempt_id="one")
    given = Assignment(directory="/runs/it", meeting=meeting, interface="eth1")  # type: ignore[arg-type]
    found = Assignment.found(given.variables())
    assert found is not None
    assert found.interface == "eth1"
