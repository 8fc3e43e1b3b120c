"""torchft's DiLoCo with its own manager and lighthouse, a replica group on each host, for _loss_peer.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it untyped
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

from _local_models import OUTER, PERIOD
from _time_to_loss import WORKERS

if TYPE_CHECKING:
    from volary.train.member.process import Membership

AT_MOST = timedelta(minutes=10)


@contextmanager
def diloco(
    module: nn.Module,
    inner: torch.optim.Optimizer,
    member: Membership,
    *,
    fragments: int,
    delay: int,
    alpha: float,
) -> Iterator[None]:
    """Let `inner` be DiLoCo's; outer rule and period are ours. delay: steps under which a fragment travels."""
    here, rank = _address(member), distributed.get_rank()
    light = LighthouseServer(bind="[::]:0", min_replicas=WORKERS, join_timeout_ms=60_000) if rank == 0 else None
    found = [f"http://{here}:{light.address().rpartition(':')[2]}" if light else ""]
    distributed.broadcast_object_list(found, src=0)
    store = TCPStore(here, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=AT_MOST),
        load_state_dict=lambda _: None,
        state_dict=dict[str, Any],
        min_replica_size=WORKERS,
        use_async_quorum=False,
        init_sync=False,  # all have drawn the same parameters
        timeout=AT_MOST,
        quorum_timeout=AT_MOST,
        rank=0,
        world_size=1,
        store_addr=here,
        store_port=store.port,
        lighthouse_addr=found[0],
        replica_id=f"replica_{rank}",
        hostname=here,
    )
    parts = _fragments(module, fragments)
    outer: dict[str, Any] = {name: value for name, value in OUTER.items() if name != "name"}
    rules: list[torch.optim.Optimizer] = [torch.optim.SGD(part.parameters(), **outer) for part in parts]
    try:
        with DiLoCo(
            manager,
            parts,
            inner,
            rules,
            sync_every=PERIOD,
            use_bucketization=True,
            fragment_sync_delay=delay,
            fragment_update_alpha=alpha,
        ):
            yield
    finally:
        distributed.barrier()  # the lighthouse stays until all are done
        manager.shutdown()
        if light is not None:
            light.shutdown()


def _fragments(module: nn.Module, count: int) -> list[nn.Module]:
    """Cut into so many fragments of interleaved blocks; the first has all else, too. One is the whole module."""
    if count == 1:
        return [module]
    blocks = list(module.get_submodule("blocks").children())
    rest = [child for name, child in module.named_children() if name != "blocks"]
    return [nn.ModuleList([*(rest if first == 0 else []), *blocks[first::count]]) for first in range(count)]


def _address(member: Membership) -> str:
    """This host's, as others reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((member.meeting.host, member.meeting.port))
        return str(probe.getsockname()[0])
