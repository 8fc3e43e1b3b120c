"""Predicts what each partition of a network takes: the seconds of a step, bytes sent, and a worker's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from volary.data.datasets.stream import Stream
from volary.data.idle import refuse_idle_workers
from volary.errors import BadInput, SettingError
from volary.errors.raised import sentences_of
from volary.exchange.choice.costs import step_s
from volary.partition import ROOM
from volary.session.fitting.needs import PARTITION
from volary.session.resolved import flow, plain_settings
from volary.session.values.reference import name_of
from volary.train.holding import layer_uses
from volary.train.trying.rank_work import passes_s, work_of
from volary.train.trying.worker_memory import WorkerMemory, memory_of

if TYPE_CHECKING:
    from volary.partition._base import Partition
    from volary.session.spec import Session
    from volary.train.model import Model

ROUND_S = 1e-4  # about what a small message between processes of one machine takes, with who sends it


@dataclass(frozen=True)
class Prediction:
    """The cost of a step of `session`, which names its partition. memories: of the workers, by rank.

    computing_s: of the worker that computes most, with its waits for others that are in the nature of the partition.
    sent_bytes: by a worker. even: what a worker would compute of the layers if all computed as much, as a share of what
    the busiest one does. bound_by: its layer that takes most, and the share of that in the whole network.
    """

    session: Session
    memories: Sequence[WorkerMemory]
    step_s: float
    computing_s: float
    sent_bytes: float
    even: float
    bound_by: tuple[str, float]

    @property
    def memory(self) -> WorkerMemory:
        """The memory of the worker that needs most."""
        return max(self.memories, key=lambda memory: memory.total)

    @property
    def partition(self) -> dict[str, Any]:
        """The partition's name and settings, as plain values; those left out that are the usual ones."""
        partition = self.session.strategy.partition
        name, given = PARTITION.name_of(type(partition)), plain_settings(partition)
        asked = any(field.default is MISSING for field in fields(partition))
        usual = {} if asked else plain_settings(type(partition)())
        return {"name": name} | {key: value for key, value in given.items() if value != usual.get(key)}

    @property
    def named(self) -> str:
        """The partition as it is written in a session."""
        found = self.partition
        return flow(found) if len(found) > 1 else str(found["name"])

    def __str__(self) -> str:
        return (
            f"partition={self.named}: {self.step_s:.3g} s a step, of which {self.computing_s:.3g} computing; sends "
            f"{self.sent_bytes / 1e6:.3g} MB a step; {self.memory.total / 2**20:,.0f} MiB a worker"
        )


def predicted(
    model: Model, partition: Partition, graph: dict[str, Any], activations_bytes: float, bytes_per_s: float
) -> Prediction:
    """Predict what a step of the model's session takes with this partition.

    graph: of the network, as `layer_graph` has it. activations_bytes: that autograd keeps of one sample. bytes_per_s:
    that a worker's link carries. Raises BadInput if the session cannot have it, or the network cannot be cut so.
    """
    strategy, module = replace(model.session.strategy, partition=partition), model.module
    session, workers = replace(model.session, strategy=strategy), strategy.workers
    batch, samples = session.data.batch_size, None if isinstance(model.samples, Stream) else len(model.samples)
    refuse_idle_workers(strategy.shares, batch, samples)
    with sentences_of(f"network {name_of(session.network)!r}", SettingError):
        planned = partition.planned(module, workers, model.some_inputs)
        settled = replace(partition, **planned)  # type: ignore[type-var]
        first = settled.part(module, 0, workers)
    parts = [replace(first, holdings=replace(first.holdings, rank=rank)) for rank in range(workers)]
    works = [work_of(session, module, part, graph) for part in parts]
    memories = [
        replace(memory_of(session, module, part), activations=round(work.activations * activations_bytes))
        for part, work in zip(parts, works, strict=True)
    ]
    busiest = max(works, key=lambda work: work.computing_s)
    layer = max(busiest.layers_s, key=lambda name: busiest.layers_s[name])
    whole = {row["name"]: passes_s(row, batch) for row in graph["layers"]}
    computing_s = busiest.computing_s / (1 - first.idle)
    uses = layer_uses(graph)
    passed, exchanged = first.passes_bytes(uses, batch), max(work.exchanged_bytes for work in works)
    return Prediction(
        session,
        memories,
        step_s(computing_s + first.rounds(uses) * ROUND_S + passed / bytes_per_s, exchanged / bytes_per_s),
        computing_s,
        passed + exchanged,
        sum(whole.values()) / workers / sum(busiest.layers_s.values()),
        (layer, whole[layer] / sum(whole.values())),
    )


def legal(model: Model, graph: dict[str, Any], activations_bytes: float, bytes_per_s: float) -> Iterator[Prediction]:
    """Yield what each partition takes that the session can have, and the network can be cut by: the simplest first."""
    for name, settings in _candidates(model.session.strategy.workers):
        try:
            yield predicted(model, ROOM.load(name)(**settings), graph, activations_bytes, bytes_per_s)
        except BadInput:  # settings that do not fit, or code that cannot be cut so: it is only looked at
            continue


def _candidates(workers: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name partitions for so many workers, each with its settings."""
    yield "data", {}
    if workers > 1:
        yield from (("sharded", {"level": level}) for level in (1, 2, 3))
        yield from ((name, {}) for name in ("hybrid", "tensor", "pipeline"))
    for replicas in (count for count in range(2, workers // 2 + 1) if workers % count == 0):
        for name in ("hybrid", "tensor", "pipeline"):
            yield "mesh", {"axes": {"data": replicas, name: workers // replicas}}
