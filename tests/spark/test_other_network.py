"""A client of a Connect server whose network the executors do not reach, as it came by a gateway."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from faults._running import BUSY, VOLARY, last_step, session, state
from lab.conftest import why_not
from spark.test_clusters import CONNECT, found, home, variables
from volary.errors import BadInput
from volary.lab import Lab
from volary.run.directory import RunDirectory

__all__ = ["variables"]
CLIENT, GATEWAY, CLUSTER = range(3)
PORT, STEPS = 15002, 20
FORWARD = """\
import asyncio
import sys


async def passed_on(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def main(own, port, other):
    async def forward(reader, writer):
        far_reader, far_writer = await asyncio.open_connection(other, port)
        await asyncio.gather(passed_on(reader, far_writer), passed_on(far_reader, writer))

    async with await asyncio.start_server(forward, own, port) as server:
        print("forwards", flush=True)
        await server.serve_forever()


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


@pytest.mark.slow  # starts a Connect server, and two runs in it
@pytest.mark.timeout(BUSY * 240)
def test_a_client_that_executors_do_not_reach_is_refused_with_its_address_and_one_that_they_reach_trains(variables):
    if reason := why_not():
        pytest.skip(reason)
    server = [str(home() / "bin" / "spark-submit"), "--master", "local[3]", "--class", CONNECT]
    with Lab(hosts=3) as lab, Path("connect.log").open("wb") as log, Path("said").open("wb") as said:
        addresses = [lab.topology.address(host) for host in range(3)]
        lab.output(CLUSTER, ["ip", "route", "add", "unreachable", addresses[CLIENT]])
        for name, value in (("port", PORT), ("address", addresses[CLUSTER])):
            server += ["--conf", f"spark.connect.grpc.binding.{name}={value}"]
        lab.start(CLUSTER, [*server, "--conf", "spark.ui.enabled=false", "spark-internal"], variables, log)
        forward = [sys.executable, "-c", FORWARD, addresses[GATEWAY], str(PORT), addresses[CLUSTER]]
        lab.start(GATEWAY, forward, output=log)
        for pattern in ("(Spark Connect server started)", "(forwards)"):
            found(Path("connect.log"), pattern)
        command = [*VOLARY, "train", session(steps=STEPS), "engine=spark", "strategy.startup_timeout_s=600"]
        command.append(f"engine.master=sc://{addresses[GATEWAY]}:{PORT}")

        many = [*command, "strategy.workers=4"]
        assert lab.start(CLIENT, many, variables, said).wait(BUSY * 60) == BadInput.exit_code, Path("said").read_text()
        assert "4 workers take 4 slots for tasks, and the cluster has 3" in Path("said").read_text()
        assert lab.start(CLIENT, command, variables, said).wait(BUSY * 60) == 4, Path("said").read_text()
        where = re.escape(addresses[CLIENT])
        refused = rf"executor on h{CLUSTER} does not reach the run's driver at {where}:\d+: No route to host; "
        assert re.search(refused, Path("said").read_text()), Path("said").read_text()

        lab.output(CLUSTER, ["ip", "route", "delete", "unreachable", addresses[CLIENT]])
        command.append("run.name=reached")
        assert lab.start(CLIENT, command, variables, said).wait(BUSY * 60) == 0, Path("said").read_text()
    directory = RunDirectory(Path("runs") / "reached")
    assert (state(directory), last_step(directory)) == ("finished", STEPS)
