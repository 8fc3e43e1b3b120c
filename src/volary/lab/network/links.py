"""The links of a lab: virtual cables to bridges in a namespace of their own, each end with a token bucket.

What leaves a host is limited at its own end (eth0), what reaches it at the switch's end (h0, h1, ...): so each
direction has the rate to itself. Trunks likewise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from volary.lab.errors import LabError
from volary.lab.network import rates
from volary.lab.network.distance import Distance
from volary.lab.network.namespaces import Namespaces
from volary.lab.network.topology import LabTopology
from volary.lab.parent_pipe import ParentPipe

HOST_DEVICE = "eth0"
_MTU = 1500
_CONGESTION = (
    "congctl cubic"  # chosen by route: the machine's default may be another, and not all may be set in a namespace
)
_WIRE = [sys.executable, "-I", "-S", str(Path(__file__).with_name("wire.py"))]
_BRIDGE = f"mtu {_MTU} type bridge forward_delay 0 mcast_snooping 0"


@dataclass(frozen=True)
class Counters:
    """Counts of what passed a host's link since the lab began. Bytes are of frames; docs/lab.md says what counts."""

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int

    def __sub__(self, before: Counters) -> Counters:
        """The counts of what passed in between."""
        return Counters(
            self.sent_bytes - before.sent_bytes,
            self.sent_packets - before.sent_packets,
            self.received_bytes - before.received_bytes,
            self.received_packets - before.received_packets,
        )


class LabLinks:
    """Makes the links of a topology, and changes them. Raises LabError where the kernel or a tool refuses."""

    def __init__(
        self, topology: LabTopology, switch: Namespaces, hosts: Sequence[Namespaces], leash: ParentPipe
    ) -> None:
        self._topology, self._switch, self._hosts = topology, switch, hosts
        switch.batch("ip", _switches(topology))
        for number, host in enumerate(hosts):
            if topology.distance:
                switch.carry_on([*_WIRE, *_ends(topology, number), *map(str, _way(topology.distance))], leash)
            switch.batch("ip", _cable(topology, number, host.pid))
        for number, host in enumerate(hosts):
            host.batch("ip", _address(topology, number))
            self.set_rate(number, topology.rates[number])
        if topology.groups > 1:
            for group in range(topology.groups):
                self.set_trunk(group, topology.trunk)

    def set_rate(self, host: int, bits_per_s: int | None) -> None:
        """Limit both directions of a host's link from now on; None: no limit."""
        self._hosts[host].batch("tc", [_limit(HOST_DEVICE, bits_per_s)])
        self._switch.batch("tc", [_limit(self._topology.name(host), bits_per_s)])

    def set_trunk(self, group: int, bits_per_s: int | None) -> None:
        """Limit both directions of a group's trunk from now on; None: no limit."""
        self._switch.batch("tc", [_limit(f"trunk{group}", bits_per_s), _limit(f"core{group}", bits_per_s)])

    def set_up(self, host: int, up: bool) -> None:
        """Plug a host's cable in, or pull it out: what is under way is lost, and no connection is told."""
        self._switch.batch("ip", [f"link set {self._topology.name(host)} {'up' if up else 'down'}"])

    def counters(self, host: int) -> Counters:
        """Count what the host has sent and received. Raises LabError if the host has no device of the lab."""
        for line in Path(f"/proc/{self._hosts[host].pid}/net/dev").read_text().splitlines():
            device, _, numbers = line.partition(":")
            if device.strip() == HOST_DEVICE:
                received, packets, *_, sent, sent_packets, _, _, _, _, _, _ = map(int, numbers.split())
                return Counters(sent, sent_packets, received, packets)
        raise LabError(f"host {host} has no device {HOST_DEVICE}")


def _switches(topology: LabTopology) -> list[str]:
    lines = []
    for group in range(topology.groups):
        lines += [f"link add switch{group} {_BRIDGE}", f"link set switch{group} up"]
    if topology.groups > 1:
        lines += [f"link add core {_BRIDGE}", "link set core up"]
        for group in range(topology.groups):
            lines += [
                f"link add trunk{group} mtu {_MTU} type veth peer name core{group} mtu {_MTU}",
                f"link set trunk{group} master switch{group} up",
                f"link set core{group} master core up",
            ]
    return lines


def _cable(topology: LabTopology, host: int, pid: int) -> list[str]:
    name, far = _ends(topology, host)
    there, switch = f"name {HOST_DEVICE} netns {pid}", f"switch{topology.group(host)}"
    made = [f"link add {name} mtu {_MTU} type veth peer name {far} mtu {_MTU}"] if topology.distance is None else []
    return [*made, f"link set {far} {there}", f"link set {name} mtu {_MTU} master {switch} up"]


def _ends(topology: LabTopology, host: int) -> tuple[str, str]:
    """The names of a cable's ends, before one of them is the host's."""
    return topology.name(host), f"far{host}"


def _way(distance: Distance) -> tuple[float, float]:
    """Seconds and loss on the way out of a host: what comes to it has been out of another."""
    return distance.round_trip_s / 2, distance.loss


def _address(topology: LabTopology, host: int) -> list[str]:
    address = topology.address(host)
    return [
        "link set lo up",
        f"link set {HOST_DEVICE} address {_hardware_address(host)} up",
        f"address add {address}/24 dev {HOST_DEVICE}",
        f"route replace {topology.network} dev {HOST_DEVICE} proto kernel scope link src {address} {_CONGESTION}",
        *(_neighbours(topology, host) if topology.distance else ()),
    ]


def _neighbours(topology: LabTopology, host: int) -> list[str]:
    """Tell a host who has which address: its questions would be lost as other packets are, and three are too many."""
    return [
        f"neigh replace {topology.address(other)} lladdr {_hardware_address(other)} dev {HOST_DEVICE} nud permanent"
        for other in range(topology.hosts)
        if other != host
    ]


def _hardware_address(host: int) -> str:
    return f"02:00:00:00:00:{host:02x}"  # administered locally


def _limit(device: str, bits_per_s: int | None) -> str:
    if bits_per_s is None:
        return f"qdisc replace dev {device} root noqueue"
    bucket = rates.TokenBucket.of(bits_per_s)
    return (
        f"qdisc replace dev {device} root tbf rate {bits_per_s}bit"
        f" burst {bucket.burst_bytes}b limit {bucket.queue_bytes}b"
    )
