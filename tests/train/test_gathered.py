"""Workers that gather parameters layer by layer, and free them after use, train what one device trains."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from train._training import Quick, Trained, made, started, trained
from train.test_equal_workers import RULES, assert_as_alone
from train.test_sharded import FORTY, LEVEL_3, sharded
from volary.errors import SettingError
from volary.exchange.gathering import units
from volary.exchange.gradients import row_blocks
from volary.exchange.overlap import comm_setup
from volary.session import Session
from volary.train.loop import train


def sessions() -> dict[str, Session]:
    """By name: every kind of parameter, rule and step."""
    adam, sgd, decaying = RULES["adam"], RULES["sgd"], {**RULES["sgd"], "weight_decay": 0.05}

    def one(network: str, /, **settings: Any) -> Session:
        return sharded(network, partition=LEVEL_3, **settings)

    return {
        "perceptron, adam": one("Exact", optimizer=adam),
        "in many buckets": one("Exact", optimizer=sgd, strategy={"bucket_mb": 1e-4}),
        "not contiguous": one("Pictures", optimizer=adam),
        "frozen, tied, unused": one("Odd", source=FORTY, optimizer=decaying),
        "attention": one("Attentive", optimizer=sgd),
        "recurrent": one("Recurrent", optimizer=sgd),
        "large layers": one("Wide", optimizer=sgd, of={"width": 256}, train={"steps": 5}),
        "used elsewhere, computed anew": one("Borrowing", optimizer=sgd),
        "batches without samples for some": one("Exact", source={"name": "points", "samples": 41}, optimizer=sgd),
        "accumulated": one("Exact", optimizer=sgd, train={"steps": 20, "accumulate": 2}),
        "clipped by norm": one("Exact", optimizer=sgd, train={"steps": 20, "clip_norm": 0.05}),
        "clipped by value": one("Exact", optimizer=sgd, train={"steps": 20, "clip_value": 0.01}),
    }


def freed(unit: units.Unit) -> None:
    """Whoever uses what is freed gets NaN, not what may still lie there."""
    unit.state = "absent"
    for start, end in unit._others:
        unit.values[start:end] = 0xFF


def in_small_units() -> None:
    """Let this process have small units: each layer is gathered alone, and nothing of it is left once it is freed."""
    units.UNIT_BYTES, units.Unit.free = 1, freed


def sent_and_left(rank: int, world_size: int) -> tuple[float, bool]:
    """Bytes that a step sends, of those that all parameters have; whether what others own is gone from memory."""
    session = sharded("Wide", partition=LEVEL_3, of={"width": 512}, train={"steps": 8})
    it = made(rank, world_size, session, disk=Quick())
    with started(it):
        train(it)
        it.coordinator.rank.group.bulletin.share("trained", 1)
    parameters_bytes = sum(one.numel() * one.element_size() for one in it.flow.module.parameters())
    per_step = median(row.sent_bytes for row in it.recorder.rows) / parameters_bytes
    gathered = it.replica.contribution.keeper.gathered
    freed_units = [unit for unit in gathered.units if unit.state == "absent" and unit.others_bytes > 2**20]
    gone = [not unit.values[low:high].any() for unit in freed_units for low, high in unit._others if high - low > 2**17]
    return per_step, bool(gone) and all(gone)


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_at_most_two_gathers_and_the_sums_travel_and_what_is_freed_takes_no_memory(workers, world_size):
    once = (world_size - 1) / world_size  # of all parameters, by a ring's reduce-scatter, and by owners to all others
    for sent, gone in workers(world_size, sent_and_left):
        assert 1.5 * once < sent <= 3.01 * once, "votes and requests are small"
        assert gone


def most_waiting(rank: int, world_size: int) -> int:
    """Count the chunks that wait to leave when backward goes on; the most. Chunks are cut small."""
    comm_setup.FREED_MB, row_blocks.LARGE_BYTES = 2**-5, 2**14
    it = made(rank, world_size, sharded("Wide", partition=LEVEL_3, of={"width": 256}, train={"steps": 6}), disk=Quick())
    keeper, found = it.replica.contribution.keeper, list[int]()
    push = keeper.push

    def pushed(chunk: int) -> None:
        push(chunk)
        found.append(sum(ready_s is not None for ready_s in keeper._comm._ready_s))

    keeper.push = pushed
    with started(it):
        train(it)
        it.coordinator.rank.group.bulletin.share("trained", 1)
    return max(found[len(found) // 6 :])  # in the first step layers are not known to write in place


def test_backward_waits_until_gradients_have_left_but_for_a_chunk_or_two(workers):
    assert max(workers(2, most_waiting)) <= 2


def read_unseen(rank: int, world_size: int) -> str:
    in_small_units()
    with pytest.raises(SettingError) as found:
        trained(rank, world_size, sharded("Keeping", partition=LEVEL_3), disk=Quick())
    return str(found.value)


def test_a_weight_that_a_forward_has_kept_a_reference_of_is_refused_by_name_and_not_read_as_it_happens_to_be(workers):
    for said in workers(2, read_unseen):
        assert said.startswith("the network's forward uses layers.0.weight, of which it keeps a reference outside of")
        assert said.endswith("accepted: layers.0.weight at each use, or partition.level=2")


def train_all(rank: int, world_size: int) -> dict[str, Trained]:
    in_small_units()
    return {name: trained(rank, world_size, one, name, disk=Quick()) for name, one in sessions().items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_all(0, 1)


@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_n_workers_that_gather_parameters_equal_one_device_over_20_steps(workers, alone, world_size):
    for rank, found in enumerate(workers(world_size, train_all)):
        assert_as_alone(found, alone, rank)
