"""torch's elastic agent, as `engine: torchrun` starts it: `python -m volary.elastic_agent WORKERS COMMAND...`.

Each machine has one, for the workers there. They meet at the run's server, so it needs no store for them: its own is in
its memory. Nothing listens. It never restarts them, and never ends the others when one is lost: that is the driver's to
decide, for every engine alike.
"""

from __future__ import annotations

import os
import sys

from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch exports it untyped
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from volary.run.launch import child
from volary.run.launch.parent import die_with_parent

LOOK_S = 0.1


class SoloRendezvous(RendezvousHandler):
    """One agent that waits for no other. Its workers are told an address that nobody listens at, and do not ask."""

    def __init__(self) -> None:
        self._store = HashStore()

    def get_backend(self) -> str:
        return "volary"

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(self._store, 0, 1, RendezvousStoreInfo("127.0.0.1", 0))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Do nothing: nobody else could come."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        """The run's id, which torch puts into TORCHELASTIC_RUN_ID."""
        return "volary"

    def shutdown(self) -> bool:
        return True


def main() -> int:
    """Start the workers and return when all have ended: 0, or 1 if one could not be started, and the others ended."""
    workers, *command = sys.argv[1:]
    if "VOLARY_DRIVER" in os.environ:  # volary.machine_agent's; a driver's own agent outlives it, as its workers do
        die_with_parent()
        del os.environ["VOLARY_DRIVER"]  # theirs is this one
    spec = WorkerSpec(
        role="worker",
        local_world_size=int(workers),
        entrypoint=sys.executable,
        args=("-I", "-S", child.__file__, *command),  # the agent would end the others if one did not end well
        rdzv_handler=SoloRendezvous(),
        max_restarts=0,
        monitor_interval=LOOK_S,
    )
    # no folder for logs: each worker writes its own into the run directory
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=os.devnull))
    try:
        return int(agent.run().is_failed())
    except SignalException as asked:
        return 128 + asked.sigval.value


if __name__ == "__main__":
    sys.exit(main())
