"""A key-value store of tensors: the parameter server for people who want only that. Guide: docs/store.md

with volary.store.serve(workers=4, servers=2, mode="async", updater={"name": "SGD", "lr": 0.1}) as served:
    ...                                                    # start workers; tell them served.address, served.key_file

with volary.store.connect(address, key_file, worker=rank) as store:
    store.init("weight", torch.zeros(1000, 1000))
    store.push("weight", gradient)
    store.pull("weight", out=weight)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from volary.comm.control.sealing import Security
    from volary.store.protocol import Store
    from volary.store.served import ServedStore

__all__ = ["connect", "local", "serve"]


def local(updater: Callable[..., None] | str | Mapping[str, Any] | None = None, *, whole: bool = False) -> Store:
    """A store in this process, for one worker; the same calls and the same results.

    updater: as in `serve`, or a function itself. whole: as in `serve`. Raises SettingError.
    """
    from volary.store.alone import InProcessStore
    from volary.store.updater import named, of_function

    return InProcessStore(of_function(updater) if callable(updater) else named(updater or "assign"), whole)


def serve(
    *,
    workers: int,
    servers: int = 1,
    mode: Literal["sync", "async"] = "sync",
    updater: str | Mapping[str, Any] | None = None,
    whole: bool = False,
    host: str = "127.0.0.1",
    security: Security = "encrypted",
) -> ServedStore:
    """Start a store for `workers` workers in `servers` processes, for as long as the `with` lasts.

    mode: sync: an update is the sum of one push of every worker, and a pull waits for what its worker has pushed;
    async: every push is an update when it arrives. updater: "assign" (what sync does by itself), "add" (what async
    does), an optimiser of torch.optim ("SGD", or {"name": "SGD", "lr": 0.1}), or a function of yours named as
    "package.module:name" or "path/file.py:name": updater(key, pushed, stored) changes `stored` in place. whole: tensors
    are never cut, and updaters see them in their shape. host: the address that workers reach this machine by.
    Raises SettingError before anything starts; entering it raises ServerLost.
    """
    from volary.store.served import ServedStore
    from volary.store.settings import Settings

    return ServedStore(Settings.checked(workers, servers, mode, updater, whole, security), host)


def connect(address: str, key_file: str | Path, worker: int) -> Store:
    """Be number `worker` (from 0) of a served store's workers. address, key_file: what `serve` gave.

    Raises SettingError, ConnectionLost, KeyRefused.
    """
    from volary.store.client.remote import connected

    return connected(address, Path(key_file), worker)
