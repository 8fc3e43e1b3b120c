"""The memory that a worker needs, by what takes it; docs/performance.md has the formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.exchange.choice.tables import codecs_of
from volary.naming import named_parameters
from volary.run.machine.memory import CODEC_BYTES, FITS, WORKER_BYTES, available_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from volary.partition._base import Part
    from volary.session.spec import Session

_MIB, _GIB = 1 << 20, 1 << 30
COPIES = 4  # of shares: its own and another worker's, of two steps


@dataclass(frozen=True)
class WorkerMemory:
    """Bytes of one worker. process: of itself, beyond Python and torch, which all of a machine share. activations: of a
    batch; None: not known. copy: of the worker that writes most of a checkpoint, while it is written, if it is there.
    servers: what all servers keep together. shares: of copies of shares, this worker's and another's, of two steps.
    """

    process: int
    parameters: int
    gradients: int
    optimizer: int
    codec: int
    copy: int
    servers: int = 0
    activations: int | None = None
    shares: int = 0

    @property
    def total(self) -> int:
        """All that a worker cannot do without."""
        kept = self.parameters + self.gradients + self.optimizer + self.shares
        return self.process + kept + self.codec + (self.activations or 0)

    @property
    def copied(self) -> int:
        """Bytes that a worker sends in each step for copies of shares."""
        return self.shares // COPIES

    @property
    def advice(self) -> str:
        """The settings that make the largest part smaller."""
        parts = {
            "a smaller data.batch_size, or train.accumulate=2 and more": self.activations or 0,
            "strategy.partition=sharded, or an optimiser that keeps less": self.optimizer,
            "strategy.partition={name: sharded, level: 3}, or a smaller network": self.parameters + self.gradients,
            "strategy.codec=none": self.codec,
            "strategy.recover=checkpoint": self.shares,
        }
        return max(parts, key=lambda words: parts[words])

    def __str__(self) -> str:
        named = {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "the optimiser's state": self.optimizer,
            "copies of shares": self.shares,
            "the codec": self.codec,
            "activations": self.activations,
            "the process": self.process,
        }
        parts = ", ".join(f"{size / _MIB:,.0f} {name}" for name, size in named.items() if size)
        left_out = "" if self.activations is not None else "; activations, which are not known, come on top"
        return (
            f"{self.total / _MIB:,.0f} MiB a worker ({parts}){left_out}; "
            f"up to {self.copy / _MIB:,.0f} more while a checkpoint is written"
        )


def worker_memory(session: Session, module: nn.Module) -> WorkerMemory:
    """The memory that the session's first worker needs besides activations; over servers, its copy of the network."""
    strategy = session.strategy
    return memory_of(session, module, strategy.partition.part(module, 0, strategy.workers))


def memory_of(session: Session, module: nn.Module, part: Part) -> WorkerMemory:
    """The memory that the worker with this part of the session's network needs besides activations."""
    strategy, parameters = session.strategy, dict(named_parameters(module))
    sizes = {name: part.holdings.computes_with(name, one.numel()) for name, one in parameters.items()}
    mine = part.holdings.kept_share
    held = sum(sizes[name] * one.element_size() for name, one in parameters.items())
    trained = sum(sizes[name] * one.element_size() for name, one in parameters.items() if one.requires_grad)
    whole = sum(one.nbytes for one in parameters.values() if one.requires_grad)
    kept = round(getattr(session.optimizer, "kept", 0) * whole * mine)
    codecs = codecs_of(strategy.codec)
    largest = max((one.nbytes for one in parameters.values() if one.requires_grad), default=0)
    scattered = part.scattered is not None
    served = bool(strategy.servers)
    return WorkerMemory(
        process=WORKER_BYTES,
        parameters=round(held * mine) + largest if scattered else held,
        gradients=round(trained * mine) + largest if part.frees_gradients and part.holdings.in_shares else trained,
        optimizer=0 if served else kept,
        codec=CODEC_BYTES + trained * any(codec.feedback for codec in codecs.values()) if codecs else 0,
        copy=0 if served else (round(held * mine) if scattered else held) + kept,
        servers=strategy.exchange.replicas * (held + kept) if served else 0,
        shares=COPIES * (round(trained * mine) + kept) if strategy.posts_shares and strategy.workers > 1 else 0,
    )


def largest_batch(memories: Iterable[WorkerMemory], workers: int, batch_size: int) -> int | None:
    """The largest `data.batch_size` with which so many workers fit into memory, two digits of it; None: not known.

    memories: of workers that have their shares of a batch of `batch_size`, in proportion to which activations grow.
    """
    available, found = available_bytes(), list[int]()
    for memory in memories:
        if memory.activations and available is not None:
            left = FITS * available / workers - (memory.total - memory.activations)
            found.append(max(0, int(batch_size * left / memory.activations)))
    if not found:
        return None
    unit = 10 ** max(0, len(str(min(found))) - 2)
    return int(min(found) // unit * unit)


def too_little(memory: WorkerMemory, workers: int) -> list[str]:
    """A warning if so many workers do not fit into memory with their activations, and what helps."""
    needed, available = workers * memory.total, available_bytes()
    if not memory.activations or available is None or needed <= FITS * available:
        return []
    takes = f"{workers} workers take" if workers > 1 else "a worker takes"
    return [
        f"with activations {takes} about {needed / _GIB:.1f} GiB of memory, and {available / _GIB:.1f} GiB are "
        f"available; what helps most: {memory.advice}"
    ]
