"""The update rule on servers: what one device does, however many servers there are, also after a checkpoint."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train._training import Quick, session
from volary.comm.channels.tcp import Received
from volary.errors import RunError, SettingError
from volary.run.checkpoints import ROSTER, Checkpoints
from volary.server.protocol.header import Form
from volary.server.protocol.to_members import Rate, ServerWelcome
from volary.server.protocol.updates import Contribution
from volary.server.shards.actions import Apply
from volary.server.shards.buffer_pool import Offer
from volary.server.shards.slice_store import PendingContribution, SliceStore
from volary.session.spec import Session
from volary.sharding.epochs import Epochs
from volary.sharding.ranges import Range
from volary.train.factors.by_name import FactorsByName
from volary.train.model import Model, build_model, update_rule
from volary.train.served.layout import Layout, lay_out
from volary.train.served.server.rule import Clock, RateChanges
from volary.train.served.server.served_network import network_of
from volary.train.served.server.shards import ShardWriter
from volary.train.served.server.stored import stored
from volary.train.state.seeds import seed_all
from volary.train.state.weights import SavedWeights, load_weights

RULES = Path(__file__).with_name("_own_rules.py")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.2, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"name": "adam", "lr": 0.02},
    "adagrad": {"name": "adagrad", "lr": 0.1},
    "own": {"name": f"{RULES}:Signs", "lr": 0.05},
    "own, whole": {"name": f"{RULES}:Rows", "lr": 0.05},
}
BATCH, SAMPLES, STEPS = 10, 41, 8  # the last batch of an epoch has one sample


def served(network: str = "Pictures", **settings: Any) -> Session:
    return session(network, strategy={"exchange": {"name": "server"}, "bucket_mb": 0.0001}, **settings)


def laid_out(model: Model, servers: int) -> Layout:
    """The layout of a session's network for so many servers."""
    of = model.session
    exchange = replace(of.strategy.exchange, servers=servers)
    return lay_out(replace(model, session=replace(of, strategy=replace(of.strategy, exchange=exchange))))


class Servers:
    """All servers of a session, as one worker sees them: two contributions make an update."""

    def __init__(
        self,
        of: Session,
        servers: int,
        folder: Path,
        restore: int | None = None,
        applied: int = 0,
        rates: RateChanges | None = None,
    ) -> None:
        seed_all(of.train.seed)
        self.model: Model = build_model(of, torch.device("cpu"))
        self.layout: Layout = laid_out(self.model, servers)
        self.start = copy.deepcopy(self.model.module)
        self.checkpoints = Checkpoints(folder, Quick())
        welcome = ServerWelcome(restore, applied)
        self.network = network_of(self.model, self.layout, rates)
        self.slice_stores: list[SliceStore] = [
            stored(self.network, self._of(shard), self.checkpoints, welcome) for shard in range(servers)
        ]

    def _of(self, shard: int) -> list[Any]:
        return [one for one in self.layout.slices if one.shard == shard]

    def update(self, number: int, given: dict[str, Tensor], samples: int, scale: float = 1.0) -> None:
        """given: by name, in the order in memory; of what is missing nothing was used."""
        for one in self.layout.slices:
            slice_store = self.slice_stores[one.shard]
            parts = [(part.name, part) for part in one.parts]
            used = sum((name in given) << place for place, (name, _) in enumerate(parts))
            dtype = self.layout.values(one.parts[0]).dtype
            nothing = {name: torch.zeros(part.end, dtype=dtype) for name, part in parts}
            values = torch.cat([given.get(name, nothing[name])[part.start : part.end] for name, part in parts])
            names = [Contribution(worker, number) for worker in range(2)]
            for worker, name in enumerate(names):
                room = slice_store.pool.take(len(values) * values.element_size())
                room.tensor.view(values.dtype).copy_(values * (0.25 if worker == 0 else 0.75))
                offer = Offer(slice_store.pool, room, Received(b"", room.payload))
                slice_store.hold(one.number, name, PendingContribution(Form.EXACT, used, offer))
            slice_store.apply(Apply(one.number, number, tuple(names), scale, samples))

    def values(self) -> dict[str, Tensor]:
        found = {name: torch.empty(one.numel(), dtype=one.dtype) for name, one in self.layout.tensors.items()}
        for one in self.layout.slices:
            at, read = 0, self.slice_stores[one.shard].read(one.number)
            for part in one.parts:
                found[part.name][part.start : part.end] = read.tensor[at : at + part.size]
                at += part.size
            read.close()
        return found

    def keep(self, snapshot: int) -> None:
        for slice_store in self.slice_stores:
            for number in slice_store.numbers:
                slice_store.keep(number, snapshot)

    def save(self, step: int, snapshot: int, progress: bytes = b"{}") -> None:
        self.checkpoints.begin(step)
        sums = {ROSTER: self.checkpoints.write(step, ROSTER, progress)}
        for shard, slice_store in enumerate(self.slice_stores):
            writer = ShardWriter(shard, self.network, self.checkpoints.write)
            sums |= writer.write(slice_store, snapshot, step, [shard])
        self.checkpoints.commit(step, len(self.slice_stores), sums, None)


class Alone:
    """One device: the same gradients, torch's way."""

    def __init__(self, of: Session, module: nn.Module) -> None:
        self.named = {name: one for name, one in module.named_parameters() if one.requires_grad}
        build, _ = update_rule(of, FactorsByName.of(of, module))
        self.optimizer = build(list(self.named))(list(self.named.values()))
        self.base = [group["lr"] for group in self.optimizer.param_groups]
        self._session = of

    def update(self, step: int, given: dict[str, Tensor]) -> None:
        clip_value = self._session.train.clip_value
        for name, one in self.named.items():
            one.grad = None
            if name in given:
                one.grad = given[name].as_strided(one.shape, one.stride()).clone()
                if clip_value is not None:
                    one.grad.clamp_(-clip_value, clip_value)
        for group, base in zip(self.optimizer.param_groups, self.base, strict=True):
            group["lr"] = base * self._session.schedule.factor(step, STEPS)
        self.optimizer.step()

    def values(self) -> dict[str, Tensor]:
        return {name: one.detach().as_strided((one.numel(),), (1,)) for name, one in self.named.items()}


def gradients(step: int, module: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    named = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
    made = {name: torch.randn(one.numel(), generator=generator, dtype=one.dtype) for name, one in named}
    if step % 3 == 2:
        made.pop(named[0][0])
    return made


def samples_after(steps: int) -> int:
    epochs, rest = divmod(steps, -(-SAMPLES // BATCH))
    return epochs * SAMPLES + min(rest * BATCH, SAMPLES)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_servers_update_as_one_device_does(optimizer: str, servers: int, tmp_path: Path) -> None:
    of = served(
        optimizer=OPTIMIZERS[optimizer],
        schedule={"name": "cosine", "warmup": 3},
        train={"steps": STEPS, "clip_value": 1.5},
    )
    parts = Servers(of, servers, tmp_path)
    alone = Alone(of, parts.start)
    for step in range(STEPS):
        given = gradients(step, parts.start)
        parts.update(step + 1, given, samples_after(step + 1))
        alone.update(step, given)
        found = parts.values()
        for name, expected in alone.values().items():
            torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_another_number_of_servers_goes_on_where_a_cut_was_kept(optimizer: str, tmp_path: Path) -> None:
    of = served(optimizer=OPTIMIZERS[optimizer], train={"steps": STEPS})
    first = Servers(of, 2, tmp_path)
    for step in range(5):
        first.update(step + 1, gradients(step, first.start), samples_after(step + 1))
    first.keep(1)
    as_kept = first.values()
    for step in range(5, STEPS):  # a snapshot stands still, and so does what the rule remembers of it
        first.update(step + 1, gradients(step, first.start), samples_after(step + 1))
    first.save(5, 1)
    again = Servers(of, 3, tmp_path, restore=5, applied=5)
    assert all(torch.equal(again.values()[name], one) for name, one in as_kept.items())
    for step in range(5, STEPS):
        again.update(step + 1, gradients(step, first.start), samples_after(step + 1))
    for name, one in first.values().items():  # to rounding: fused rules round otherwise at the end of a run of values
        torch.testing.assert_close(again.values()[name], one, rtol=0, atol=1e-12)


def test_the_network_is_put_together_from_what_servers_wrote(tmp_path: Path) -> None:
    of = served("Dropping")
    servers = Servers(of, 3, tmp_path)
    given = gradients(0, servers.start) | {
        name: torch.full((one.numel(),), 4, dtype=one.dtype) for name, one in servers.start.named_buffers()
    }
    servers.update(1, given, 10)
    servers.keep(1)
    servers.save(1, 1)
    manifest = servers.checkpoints.verify(1)
    seed_all(99)
    fresh = build_model(of, torch.device("cpu")).module
    load_weights(fresh, SavedWeights(servers.checkpoints.path(1), manifest))
    found = dict(fresh.state_dict())
    for name, values in servers.values().items():
        assert torch.equal(found[name].as_strided((found[name].numel(),), (1,)), values)
    assert found["layers.1.running_mean"].unique().tolist() == [2.0]  # the mean of two contributions, 1 and 3
    assert found["layers.1.num_batches_tracked"].item() == 1  # what one of them carries
    again = Servers(of, 2, tmp_path, restore=1, applied=1).values()
    assert all(torch.equal(again[name], values) for name, values in servers.values().items())


def test_an_index_that_is_expanded_stays_beside_what_travels() -> None:
    model = build_model(served("Dropping"), torch.device("cpu"))
    model.module.register_buffer("index", torch.arange(3).expand(2, 3))
    names = list(laid_out(model, 2).tensors)
    assert "index" not in names
    assert "layers.1.num_batches_tracked" in names


def test_what_a_server_writes_for_one_that_was_lost_stands_beside_its_own(tmp_path: Path) -> None:
    servers = Servers(served(), 1, tmp_path)
    servers.layout = laid_out(servers.model, 2)
    network = network_of(servers.model, servers.layout)
    slice_store = stored(network, servers.layout.slices, servers.checkpoints, ServerWelcome(None, 0))
    for number in slice_store.numbers:
        slice_store.keep(number, 1)
    writer = ShardWriter(0, network, servers.checkpoints.write)
    servers.checkpoints.begin(1)
    sums = writer.write(slice_store, 1, 1, [0]) | writer.write(slice_store, 1, 1, [1])
    servers.checkpoints.commit(1, 2, sums, None)
    manifest = servers.checkpoints.verify(1)
    saved = SavedWeights(servers.checkpoints.path(1), manifest)
    for name, values in servers.start.state_dict().items():
        assert torch.equal(saved.whole(name), values)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    servers = Servers(served("Dropping"), 2, tmp_path)
    servers.keep(1)
    servers.save(1, 1)
    with pytest.raises(RunError, match=r"the checkpoint's layers\..* is \(.*8\); the network's is \(.*9\)"):
        Servers(served("Dropping", of={"width": 9}), 2, tmp_path, restore=1)
    saved = SavedWeights(servers.checkpoints.path(1), servers.checkpoints.manifest(1))
    with pytest.raises(RunError, match=r"the checkpoint's other is missing; the network's is \(1,\)"):
        saved.values(Range("other", 0, 1), torch.ones(1))


def test_the_scale_of_an_update_is_a_factor_of_its_gradient(tmp_path: Path) -> None:
    of = served(optimizer={"name": "sgd", "lr": 1.0})
    servers = Servers(of, 2, tmp_path)
    before, given = servers.values(), gradients(0, servers.start)
    servers.update(1, given, BATCH, scale=2.0)
    for name, one in servers.values().items():
        torch.testing.assert_close(before[name] - one, 2 * given[name])


@pytest.mark.parametrize(("samples", "step"), [(1, 0), (10, 0), (11, 1), (41, 4), (42, 5), (51, 5), (52, 6), (82, 9)])
def test_the_servers_clock_counts_batches_as_one_device_does(samples: int, step: int) -> None:
    class Told:
        def factor(self, step: int, steps: int) -> float:
            return float(step)

    assert Clock(Told(), Epochs(SAMPLES, BATCH), 100).factor(samples) == step


def test_a_rule_that_needs_the_loss_again_is_refused() -> None:
    of = served(optimizer={"name": "torch.optim:LBFGS", "lr": 0.1})
    with pytest.raises(SettingError, match="LBFGS"):
        laid_out(build_model(of, torch.device("cpu")), 2)


def test_layouts_agree_on_every_value(tmp_path: Path) -> None:
    of = served("Dropping")
    for servers in (1, 2, 5):
        layout = Servers(of, servers, tmp_path).layout
        for name, tensor in layout.tensors.items():
            parts = sorted((part.start, part.end) for one in layout.slices for part in one.parts if part.name == name)
            assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
            assert parts[-1][1] == tensor.numel()


def test_a_learning_rate_that_changes_holds_for_updates_beyond_some_samples(tmp_path: Path) -> None:
    of = served(optimizer={"name": "sgd", "lr": 1.0})
    rates = RateChanges()
    servers = Servers(of, 2, tmp_path, rates=rates)
    rates.add(Rate(BATCH, 0.5))
    rates.add(Rate(2 * BATCH, 0.5, factor=0.1))
    given, lost = gradients(0, servers.start), []
    for number in (1, 2, 3):
        before = servers.values()
        servers.update(number, given, number * BATCH)
        lost.append({name: before[name] - one for name, one in servers.values().items()})
    for name, gradient in given.items():
        torch.testing.assert_close(lost[0][name], gradient)
        torch.testing.assert_close(lost[1][name], 0.5 * gradient)
        torch.testing.assert_close(lost[2][name], 0.05 * gradient)


def test_auto_pushes_factors_of_layers_that_compute_in_their_own_type_alone():
    strategy = {"exchange": {"name": "server"}, "codec": "auto"}
    for precision, names in {"fp32": {"factors", "exact"}, "bf16": {"exact"}}.items():
        of = session("Wide", of={"bits": 32}, strategy=strategy, train={"precision": precision})
        found = laid_out(build_model(of, torch.device("cpu")), 2).representations
        assert {one.name for one in found} == names
