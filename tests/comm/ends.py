"""Ways in which a rank ends, as programs of their own. Run by test_group: `ends.py NAME PORT RANK KEY`."""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from volary.comm.control.store import KeyedStore
from volary.comm.groups import group
from volary.train.member.bulletin import BoardBulletin


def never_leaves() -> None:
    """A daemon thread is in the middle of collectives when the main thread ends."""
    inside = threading.Event()

    def reduce_for_ever() -> None:
        try:
            while True:
                dist.all_reduce(torch.ones(1))
                inside.set()
        except RuntimeError:
            return

    threading.Thread(target=reduce_for_ever, daemon=True).start()
    inside.wait()


def stopped_peer() -> None:
    """Rank 1 stops; rank 0 hangs on it until a watchdog cuts the mesh."""
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    cut_at = []
    watchdog = threading.Timer(0.5, lambda: (cut_at.append(time.monotonic()), group.cut()))
    watchdog.start()
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError:
        print("woken after", time.monotonic() - cut_at[0], "s")
    watchdog.join()
    group.leave()


if __name__ == "__main__":
    store = KeyedStore.at("127.0.0.1", int(sys.argv[2]), bytes.fromhex(sys.argv[4]))
    group.join(store, BoardBulletin(store, int(sys.argv[3]), 2, 0), torch.device("cpu"), 60)
    globals()[sys.argv[1]]()
