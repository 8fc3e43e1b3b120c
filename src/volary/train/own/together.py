"""Agreement of the workers of a user's own loop, between steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import nan
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import torch
from torch import Tensor

from volary.comm.groups import blocking
from volary.data.batching.structures import moved
from volary.data.datasets.stream_shards import ValueExchange
from volary.errors import RanksDiffer

if TYPE_CHECKING:
    from torch import nn

    from volary.comm.groups.group import Group
    from volary.data.sharing.among import SharedData
    from volary.train.recording.recorder import Recorder


Found = TypeVar("Found")


class HasPeers(Protocol):
    """The part of an `LoopBackend` that calls of all workers need."""

    def make(self, act: Callable[[], Found]) -> Found:
        """Do what all do together, again if a worker is lost meanwhile and the others go on."""
        ...

    def peers(self, called: str) -> Group:
        """The group that makes this call together. Raises BadInput if none can."""
        ...


@contextmanager
def called_by_all(loop: HasPeers, recorder: Recorder, call: str, size: int = 0) -> Iterator[Group]:
    """Around what all workers do in this call: in a group of its own, so that it never mixes with a step's.

    size: of how many values, if these must be as many. Raises RanksDiffer if another worker makes another call.
    """
    with recorder.called(f"worker.{call}"):
        group = loop.peers(call)
        require_same(call, size, group)
        yield group


def exchange(group: Group, calls: str) -> ValueExchange:
    """A part of the group's bulletin for what shards of streams have, in calls of this kind."""
    return ValueExchange(group.bulletin.within(f"streams of {calls}"))


def call(loop: HasPeers, recorder: Recorder, name: str, act: Callable[[Group], Found], size: int = 0) -> Found:
    """Make a call of all workers: `act`, in its group; see `called_by_all`."""
    with called_by_all(loop, recorder, name, size) as group:
        return act(group)


def sure_call(loop: HasPeers, recorder: Recorder, name: str, act: Callable[[Group], Found], size: int = 0) -> Found:
    """The same, made again with those that are left if a worker is lost meanwhile and the run goes on."""
    return loop.make(lambda: call(loop, recorder, name, act, size))


_ALONE = ""  # the name of a figure that is the only one
CALLS = ("mean", "sum", "gather", "evaluate", "feed", "save", "weigh", "metric", "state_dict", "learn")


def require_same(call: str, size: int, group: Group) -> None:
    """Raise RanksDiffer unless all ranks make this one of `CALLS`, of as many values. A collective call."""
    if group.size == 1:
        return
    found = blocking.gather(torch.tensor([CALLS.index(call), size]), group).tolist()
    if any(one != found[0] for one in found):
        listed = ", ".join(f"rank {rank} {_shown(*one)}" for rank, one in enumerate(found))
        accepted = "all workers must make the same calls in the same order"
        raise RanksDiffer(f"workers made different calls: {listed}; {accepted}")


def raise_diverged(place: tuple[int, int], settings: dict[str, Any], group: Group) -> NoReturn:
    """Raise RanksDiffer: workers would add up gradients of different steps, or update differently. A collective call.

    place: the steps that this worker has made, and the batches that it was given. settings: of its optimiser.
    """
    everyone = blocking.gather_plain([*place, settings], group)
    for name in settings if len({(steps, batches) for steps, batches, _ in everyone}) == 1 else ():
        values = [str(found.get(name)) for *_, found in everyone]
        if len(set(values)) > 1:
            listed = ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
            raise RanksDiffer(
                f"{name} of the optimiser is {listed} in step {place[0]}; accepted: the same on all workers"
            )
    places = [
        f"rank {rank} is in step {steps + 1}" + (f" with batch {batches} of worker.feed" if batches else "")
        for rank, (steps, batches, _) in enumerate(everyone)
    ]
    raise RanksDiffer(
        f"workers are not at the same place of their loops: {', '.join(places)}; accepted: each takes as many batches "
        "as the others, and in each step calls backward() as often as they do, and optimizer.step()"
    )


def _shown(call: int, size: int) -> str:
    return f"worker.{CALLS[call]}" + (f" of {size} value{'s' * (size > 1)}" if size else "")


def total(value: Any, group: Group, weight: float = 1.0) -> Any:
    """The sum over all ranks of `value`, a tensor or a number, times each rank's weight. A collective call."""
    tensor = isinstance(value, Tensor)
    whole = value.detach().clone() if tensor else torch.tensor(float(value), dtype=torch.float64)
    if weight != 1.0:
        whole = whole * weight if weight else torch.zeros_like(whole)  # of which nothing counts, it may be no number
    if group.size > 1:
        blocking.add_up(whole, group)
    return whole if tensor else whole.item()


def gathered(value: Any, group: Group) -> list[Any]:
    """Every rank's `value`, by rank: tensors of one type and any shape, or what JSON knows. A collective call."""
    if not isinstance(value, Tensor):
        return blocking.gather_plain(value, group)
    if group.size == 1:
        return [value]
    shapes = blocking.gather_plain(list(value.shape), group)
    sizes = [torch.Size(shape).numel() for shape in shapes]
    padded = value.new_zeros(max(sizes))
    padded[: value.numel()] = value.detach().flatten()
    rows = blocking.gather(padded, group)
    return [row[:size].view(shape) for row, size, shape in zip(rows, sizes, shapes, strict=True)]


def evaluated(
    function: Callable[[Any], Any],
    shared: SharedData,
    models: Sequence[nn.Module],
    device: torch.device,
    recorder: Recorder,
    agreeing: Callable[[Callable[[Group], list[Any]]], list[Any]],
    weighed: Callable[[], float | None],
    *,
    all_of_them: bool = False,
) -> Any:
    """The mean over all samples of what `function` finds, a mean over each batch: a number, or several by name.

    Models are in evaluation mode meanwhile. agreeing: lets all workers do something together. weighed: what the newest
    mean is over, if `function` has said it. all_of_them: one without samples of a batch goes through `function`, too,
    as the others cannot without it. A collective call.
    """
    sums: dict[str, float] = {}
    counted = 0.0
    with _evaluating(models), torch.no_grad():
        for part in shared.epoch(0):
            recorder.enter("evaluate")
            if not part.samples and not all_of_them:
                continue
            found = function(moved(part.batch, device))
            count = weighed()
            if count is None or not part.samples:
                count = part.samples
            for name, value in (found if isinstance(found, Mapping) else {_ALONE: found}).items():
                sums[name] = sums.get(name, 0.0) + (float(value) * count if count else 0.0)
            counted += count

    def agreed(group: Group) -> list[Any]:
        # some may have had no samples at all
        names: list[str] = next(filter(None, blocking.gather_plain(list(sums), group)), [])
        together = torch.tensor([*(sums.get(name, 0.0) for name in names), counted], dtype=torch.float64)
        return [names, total(together, group).tolist()]

    names, whole = agreeing(agreed)
    recorder.enter("between steps")
    means = {name: value / whole[-1] if whole[-1] else nan for name, value in zip(names, whole, strict=False)}
    return means.get(_ALONE, means)


@contextmanager
def _evaluating(models: Sequence[nn.Module]) -> Iterator[None]:
    training = [(part, part.training) for model in models for part in model.modules()]
    for part, _ in training:
        part.training = False
    try:
        yield
    finally:
        for part, before in training:
            part.training = before
