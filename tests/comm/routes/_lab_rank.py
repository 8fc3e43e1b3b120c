"""One rank of a test in the lab: finds the topology, sums by one route, prints one line of what it saw."""

from __future__ import annotations

import json
import sys

import torch
from torch import distributed
from torch.distributed.distributed_c10d import _get_default_store

from comm.routes._ranks import route, shape
from volary.comm.groups.group import Group
from volary.comm.topology.links import Links
from volary.comm.topology.measuring import find
from volary.train.member.bulletin import BoardBulletin


def main(name: str, numel: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    group = Group(BoardBulletin(_get_default_store(), rank, world_size, 0), distributed.group.WORLD)
    links = Links(group)
    topology = find(links)
    taken = route(name, group, [shape(numel)], topology)
    taken.memory[0].contribution.fill_(rank + 1)
    taken.sum_up(0, 0, numel).wait()
    exact = bool((taken.memory[0].agreed == world_size * (world_size + 1) // 2).all())
    seen = {
        "nodes": topology.nodes,
        "hosts": topology.hosts,
        "subnetworks": topology.subnetworks,
        "said": str(topology),
        "exact": exact,
        "sent_bytes": taken.sent_bytes,
        "measuring_bytes": links.sent_bytes,
    }
    print(json.dumps(seen), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
