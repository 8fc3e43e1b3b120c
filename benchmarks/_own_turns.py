"""A worker of own_loop.py: a loop of one's own, and its peer, a turn each. Its argument is JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import volary
from _networks import alexnet_like
from _report import paired
from _tuned_ddp import TUNED
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.loop import train
from volary.train.model import build_model
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.worker.build import assemble

Loop = Callable[[int], None]  # goes on for so many steps

WARM_STEPS = 4  # DistributedDataParallel makes its buckets anew after the first, ours takes its order in the third
SAMPLES = 8192
SHAPES = {"lenet": (1, 28, 28), "resnet18": (3, 32, 32), "fc": (3, 32, 32), "many": (256,)}
BATCHES = {"lenet": 64, "resnet18": 32, "fc": 32, "many": 16}
NETWORKS = {"fc": "lenet", "many": f"{Path(__file__).with_name('_networks.py')}:many_gains"}  # others by their name
CLASSES = 10


class Images(Dataset[Any]):
    """Samples in tensors, each of which a loader asks for."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index], self.targets[index]


class Gathered(Images):
    """Images of which a loader gets a batch at once."""

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """A batch; torch's fetcher asks for it."""
        chosen = torch.tensor(indices)
        return self.inputs.index_select(0, chosen), self.targets.index_select(0, chosen)


def as_it_is(batch: Any) -> Any:
    """The collate_fn of what is a batch already."""
    return batch


def endless(epochs: Callable[[int], Any]) -> Iterator[Any]:
    """Batches of one epoch after the other."""
    epoch = 0
    while True:
        yield from epochs(epoch)
        epoch += 1


class Sides:
    """Makes both loops, of one session's network and values."""

    def __init__(self, worker: Any, work: dict[str, Any]) -> None:
        self._worker, self._work = worker, work
        network = work["network"]
        self._session = Session(
            network=NETWORKS.get(network, network),
            data={
                "source": {"name": "synthetic", "shape": SHAPES[network], "samples": SAMPLES},
                "batch_size": BATCHES[network],
            },
            optimizer={"name": "sgd", "lr": 0.01, "momentum": 0.9},
            train={"steps": 10**9, "device": "cpu"},
            evaluate={"every": "never"},
            checkpoint={"every": "never"},
            strategy={"workers": worker.world_size},
        )
        seed_all(1)
        self._model = build_model(self._session, worker.device)
        self._module: nn.Module = alexnet_like(CLASSES) if network == "fc" else deepcopy(self._model.module)
        samples: Any = self._model.samples
        self._data = Gathered(samples.inputs, samples.targets)
        self._early = bool(work["in_lab"])

    def ours(self) -> Loop:
        """A loop of one's own, over the loader that was there."""
        module = deepcopy(self._module)
        module, optimizer = self._worker.distribute(module, self._optimizer(module), early_update=self._early)
        feed = self._worker.feed(self._loader(BATCHES[self._work["network"]], shuffle=True))
        run = stepping(module, optimizer, endless(lambda _: feed))

        def turn(steps: int) -> None:
            run(steps)
            list(module.parameters())  # with early updates these wait

        return turn

    def session(self) -> Loop:
        """The training of `volary train`. A collective call."""
        worker = self._worker
        training = assemble(
            self._model,
            group=worker._loop.peers("session"),
            device=worker.device,
            recorder=worker._recorder,
            drafts=DirectoryDrafts(Checkpoints(Path("unused")), worker._recorder, 1, keep_best=False),
            asked_to_end=lambda: False,
        )
        training.coordinator.rank.replica.start(training.coordinator.saver.late)

        def run(steps: int) -> None:
            training.coordinator.rank.data.feed.limit(training.coordinator.rank.data.feed.step + steps)
            train(training)

        return run

    def ddp(self) -> Loop:
        """The script of DistributedDataParallel's documentation, tuned. A collective call."""
        if not self._early:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        rank, world_size = self._worker.rank, self._worker.world_size
        module = DistributedDataParallel(
            deepcopy(self._module), process_group=distributed.new_group(backend="gloo"), **TUNED
        )
        sampler = DistributedSampler[Any](self._data, world_size, rank)
        loader = self._loader(BATCHES[self._work["network"]] // world_size, sampler=sampler)

        def epoch(number: int) -> Any:
            sampler.set_epoch(number)
            return loader

        return stepping(module, self._optimizer(module), endless(epoch))

    def fed(self) -> Loop:
        """`worker.feed(loader)`, and nothing else."""
        feed = self._worker.feed(self._images())
        return reading(endless(lambda _: feed))

    def loader(self) -> Loop:
        """The loader alone."""
        loader = self._images()
        return reading(endless(lambda _: loader))

    def _images(self) -> DataLoader[Any]:
        data = Images(self._data.inputs, self._data.targets)
        return DataLoader(data, BATCHES[self._work["network"]], shuffle=True)

    def _loader(self, batch_size: int, **how: Any) -> DataLoader[Any]:
        return DataLoader(self._data, batch_size, collate_fn=as_it_is, **how)

    def _optimizer(self, module: nn.Module) -> Any:
        return self._session.optimizer.build(module.parameters())


def stepping(module: nn.Module, optimizer: Any, batches: Iterator[Any]) -> Loop:
    """The textbook's loop."""

    def run(steps: int) -> None:
        total = 0.0
        for _ in range(steps):
            inputs, targets = next(batches)
            optimizer.zero_grad()
            loss = cross_entropy(module(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()

    return run


def reading(batches: Iterator[Any]) -> Loop:
    """Batches are taken, and dropped."""

    def run(steps: int) -> None:
        for _ in range(steps):
            next(batches)

    return run


@contextmanager
def unwatched() -> Iterator[None]:
    """The peer's optimisers are without the hooks that our loop sets on every optimiser."""
    both: tuple[dict[int, Any], ...] = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    kept = [dict(hooks) for hooks in both]
    for hooks in both:
        hooks.clear()
    yield
    for hooks, before in zip(both, kept, strict=True):
        hooks.update(before)


class Turns:
    """Times turns of equally many steps for both, which all workers take together."""

    def __init__(self, worker: Any, loops: list[Loop], turn_s: float, fewest: int, *, of_processors: bool) -> None:
        self._worker, self._steps, self._of_processors = worker, WARM_STEPS, of_processors
        for loop in loops:
            self.take(loop)
        self._steps = max(fewest, round(turn_s / self.take(loops[0])))

    def take(self, loop: Loop) -> float:
        """Seconds per step of a turn of `loop`: the slowest worker's, or all workers' processors'; the same on all."""
        self._worker.barrier()
        now = time.process_time if self._of_processors else time.perf_counter
        started_s = now()
        loop(self._steps)
        each = self._worker.gather(now() - started_s)
        seconds = sum(each) if self._of_processors else max(each)
        while len(self._worker._recorder.rows) > 1:  # what the heartbeat has yet to send belongs to nobody else's turn
            time.sleep(0.01)
        return float(seconds) / self._steps


def main() -> None:
    """Take turns, and let rank 0 write the pairs down."""
    work = json.loads(sys.argv[1])
    worker = volary.init()
    if work["in_lab"]:
        torch.set_num_threads(1)
    sides = Sides(worker, work)
    ours = sides.fed() if work["against"] == "loader" else sides.ours()
    made: Callable[[], Loop] = getattr(sides, work["against"])
    peer = made()

    def theirs(steps: int) -> None:
        with unwatched():
            peer(steps)

    turns = Turns(worker, [ours, theirs], work["turn_s"], work["steps"], of_processors=work["processors"])
    found = paired(lambda: turns.take(ours), lambda: turns.take(theirs), work["pairs"])
    if worker.is_first:
        named = {"session": "a session's loop", "ddp": "DDP, tuned", "loader": "the loader alone"}[work["against"]]
        Path("turns.json").write_text(json.dumps({"paired": asdict(found), "peer": named}), encoding="utf-8")


if __name__ == "__main__":
    main()
