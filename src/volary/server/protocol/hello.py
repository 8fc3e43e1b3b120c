"""The first message of a connection to the roster (see `volary.comm.control.service`): who has come."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class WorkerHello(Struct, frozen=True, tag_field="is", tag="worker"):
    """rank: its place, which nobody had before. facts: what all workers must agree on, by name.

    samples, validation: how many there are to learn from and to evaluate on. metric, higher_is_better: what is best.
    residuals: its codecs leave something out, which belongs to checkpoints. batch_size: samples of a global batch, if a
    loop of one's own says it; 0: the session does.
    """

    rank: int
    facts: dict[str, str]
    samples: int
    validation: int
    metric: str
    higher_is_better: bool
    residuals: bool = False
    batch_size: int = 0


class ServerHello(Struct, frozen=True, tag_field="is", tag="server"):
    """number: of the run's servers, from 0. host, port: where it listens for workers. pid: its process."""

    number: int
    host: str
    port: int
    pid: int


Hello: TypeAlias = WorkerHello | ServerHello
