"""Workers that hold parts of layers train what one device trains."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from _workers import joined
from partition._cut import GPT, assert_same, blocks, sessions, train_all
from train._training import Quick, Trained, session, trained
from train.test_equal_workers import RULES
from train.test_sharded import FORTY
from train.test_sharded_zoo import TOKENS, of, zoo
from volary.errors import SettingError
from volary.network.layer_graph import layer_graph
from volary.partition import ROOM
from volary.session import Session
from volary.train.holding import layer_uses
from volary.train.model import build_model

TENSOR = {"partition": "tensor"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_all(0, 1, {})


@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_parts_of_layers_equal_one_device(workers, alone, world_size):
    for rank, found in enumerate(workers(world_size, train_all, TENSOR)):
        for name, one in sessions(TENSOR).items():
            own = blocks(one, rank, world_size)
            assert own, "something is cut"
            assert_same(found[name], alone[name], own, f"{name}, rank {rank} of {world_size}:")


def stepwise(network: str, **more: Any) -> Any:
    """A session that saves after 4 of 8 steps."""
    settings = {"optimizer": RULES["adam"], "train": {"steps": 8}, "checkpoint": {"every": "4 steps"}, **more}
    return session(network, source=FORTY, strategy=TENSOR, **settings)


def dropping() -> dict[str, Any]:
    gpt = of(zoo("gpt", **GPT | {"dropout": 0.2}), TOKENS, RULES["adam"] | {"lr": 1e-3}, TENSOR)
    return {"perceptron": stepwise("Dropping"), "between": stepwise("DroppingBetween"), "transformer": gpt}


def interrupted(rank: int, world_size: int) -> dict[str, list[Trained]]:
    """Results of a training without a stop, and of one that continues from its own checkpoint after 4 steps."""
    found = {}
    for name, one in dropping().items():
        whole = trained(rank, world_size, one, f"whole {name}", disk=Quick())
        trained(rank, world_size, one, f"halves {name}", disk=Quick(), until=lambda step: step == 4)
        found[name] = [whole, trained(rank, world_size, one, f"halves {name}", disk=Quick())]
    return found


@pytest.mark.slow  # other numbers of workers come below
def test_as_many_workers_that_hold_parts_go_on_bit_for_bit_and_what_all_have_stays_equal(workers):
    everyone = workers(2, interrupted)
    for rank, found in enumerate(everyone):
        for name, (whole, resumed) in found.items():
            own = blocks(dropping()[name], rank, 2)
            assert resumed.outcome == "finished" and len(resumed.rows) == len(whole.rows) - 4, name
            for parameter, values in whole.parameters.items():
                assert torch.equal(resumed.parameters[parameter], values), (name, parameter)
                if parameter not in own:
                    assert torch.equal(everyone[0][name][0].parameters[parameter], values), (name, parameter)


def between(strategy: dict[str, Any]) -> Any:
    return session("DroppingBetween", source=FORTY, optimizer=RULES["sgd"], train={"steps": 8}, strategy=strategy)


def drop_between(rank: int, world_size: int, strategy: dict[str, Any]) -> Trained:
    return trained(rank, world_size, between(strategy), f"between {world_size}", disk=Quick())


def test_dropout_between_parts_drops_what_it_drops_on_one_device(workers):
    alone = drop_between(0, 1, {})
    for rank, found in enumerate(workers(3, drop_between, TENSOR)):
        own = blocks(between(TENSOR), rank, 3)
        assert "layers.0.bias" in own and "layers.3.bias" not in own, "columns, then rows"
        assert_same(found, alone, own, f"rank {rank}:")


OTHERS: dict[str, dict[str, Any]] = {
    "parts": TENSOR,
    "whole": {"partition": "data"},
    "shares": {"partition": "sharded", "exchange": {"name": "allreduce", "route": "ring"}},
}


def left_after_4(rank: int, world_size: int, folder: str) -> None:
    for name in ("parts", "whole"):
        one = session("Exact", source=FORTY, optimizer=RULES["adam"], strategy=OTHERS[name])
        trained(rank, world_size, one, f"{folder}/{name}", disk=Quick(), until=lambda step: step == 4)


def go_on(rank: int, world_size: int, folder: str) -> dict[tuple[str, str], Trained]:
    """By who wrote and who reads: what comes of it."""
    found = {}
    for written, name in (("parts", "parts"), ("parts", "whole"), ("parts", "shares"), ("whole", "parts")):
        copied = f"{folder}/{written} to {name} of {world_size}"
        if rank == 0:
            shutil.copytree(f"{folder}/{written}", copied, dirs_exist_ok=True)
        joined().bulletin.share(f"copied {copied}", 1) if world_size > 1 else None
        one = session("Exact", source=FORTY, optimizer=RULES["adam"], strategy=OTHERS[name], train={"steps": 8})
        found[written, name] = trained(rank, world_size, one, copied, disk=Quick())
    return found


def test_other_numbers_of_workers_and_other_partitions_go_on_from_parts_and_these_from_them(workers, tmp_path):
    folder = str(tmp_path / "left")
    Path(folder).mkdir()
    eight = session("Exact", source=FORTY, optimizer=RULES["adam"], train={"steps": 8})
    alone = trained(0, 1, eight, f"{folder}/alone", disk=Quick())
    workers(2, left_after_4, folder)
    for world_size in (3, 1):
        everyone = workers(world_size, go_on, folder) if world_size > 1 else [go_on(0, 1, folder)]
        for rank, results in enumerate(everyone):
            for (written, name), found in results.items():
                one = session("Exact", source=FORTY, strategy=OTHERS[name])
                own = blocks(one, rank, world_size) if name == "parts" else {}
                alone.rows, every = alone.rows[-4:], alone.rows
                assert_same(found, alone, own, f"{written} to {name} of {world_size}, rank {rank}:")
                alone.rows = every


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            {"nowhere": "column"},
            "plan names the layer 'nowhere', which the network does not have; it can cut: layers.0, ",
        ),
        (
            {"layers": "row"},
            "plan names layers, a Sequential, which cannot be cut; accepted: fully connected layers, ",
        ),
        ({"layers.4": "column"}, "plan cuts layers.4 by columns, of which it has 4, over 5 workers; accepted: row, or"),
        (
            {"unused": "row"},
            "plan cuts unused by rows, of which it has 2, over 5 workers; accepted: to leave it out, or",
        ),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_in_a_sentence(plan, said):
    one = session("Exact", strategy={"partition": {"name": "tensor", "plan": plan}})
    with pytest.raises(SettingError) as found:
        blocks(one, 0, 5)
    assert said in str(found.value)


def test_layers_that_share_a_weight_are_cut_alike_or_not_at_all():
    tied = of(
        zoo("gpt", **GPT), TOKENS, RULES["sgd"], {"partition": {"name": "tensor", "plan": {"layers.head": "row"}}}
    )
    with pytest.raises(
        SettingError, match=r"plan cuts layers.head, whose weight another layer shares, which is not cut"
    ):
        blocks(tied, 0, 2)
    both = {"layers.head": "column", "layers.tokens": "row"}
    tied = of(zoo("gpt", **GPT), TOKENS, RULES["sgd"], {"partition": {"name": "tensor", "plan": both}})
    assert list(blocks(tied, 0, 2)) == ["layers.tokens.weight"]


@pytest.mark.parametrize("plan", ["columns", {}, {"fc": "diagonal"}])
def test_a_plan_that_is_none_is_refused(plan):
    with pytest.raises(SettingError, match="plan"):
        ROOM.load("tensor")(plan=plan)


def read_a_weight(rank: int, world_size: int) -> str:
    with pytest.raises(SettingError) as found:
        trained(rank, world_size, session("Decaying", strategy=TENSOR), disk=Quick())
    return str(found.value)


def test_code_that_reads_the_weight_of_a_layer_that_is_cut_is_found_with_the_first_step(workers):
    for said in workers(2, read_a_weight):
        assert re.match(r"the network's forward uses \S+\.weight outside of \S+, and with partition=tensor", said)


def test_check_says_what_each_worker_passes_to_others_and_it_is_what_is_sent(workers):
    one = session("Wide", of={"width": 64}, train={"steps": 2, "compare_replicas": "never"}, strategy=TENSOR)
    everyone = workers(2, passing, one)
    for rank, (found, expected) in enumerate(everyone):
        assert found.rows[-1].sent_bytes == pytest.approx(expected, rel=0.01), rank
        assert expected > 10_000


def passing(rank: int, world_size: int, one: Session) -> tuple[Trained, float]:
    """A worker's training, and the bytes that `check` expected its last step to send."""
    model = build_model(one, torch.device("cpu"))
    inputs, _ = model.samples.fetch(torch.tensor([0, 1]))
    uses = layer_uses(layer_graph(model.module, inputs, nullcontext()))
    part = one.strategy.partition.part(model.module, rank, world_size)
    return trained(rank, world_size, one, disk=Quick()), part.passes_bytes(uses, one.data.batch_size)


def encode(rank: int, world_size: int) -> list[str]:
    one = session("Exact", train={"steps": 1}, strategy={"partition": "tensor", "codec": "onebit"})
    return [said["text"] for said in trained(rank, world_size, one, disk=Quick()).events("warning")]


def test_a_codec_that_has_no_effect_is_told_once(workers):
    said, nothing = workers(2, encode)
    why = "strategy.codec=onebit has no effect: all workers hold one replica, whose gradients do not travel"
    assert why in said and why not in nothing


def test_a_budget_of_parameters_cuts_the_largest_layers_and_no_more_than_that_takes():
    wide, narrow = torch.nn.Linear(100, 1000), torch.nn.Linear(1000, 100)
    module = torch.nn.Sequential(wide, torch.nn.ReLU(), narrow, torch.nn.LayerNorm(100), torch.nn.Linear(100, 300))
    first, second = {"0.weight", "0.bias", "2.weight"}, {"4.weight", "4.bias"}

    def cut(memory: int) -> set[str]:
        holdings = ROOM.load("tensor")(memory=f"{memory}B").part(module, 0, 2).holdings
        return {block.name for block in holdings.blocks.values()}

    whole = sum(one.nbytes for one in module.parameters())
    after_first = whole - 4 * (100 * 1000 + 1000 + 1000 * 100) // 2
    least = after_first - 4 * (100 * 300 + 300) // 2
    assert cut(whole - 1) == cut(after_first) == first, "columns and their rows are cut together"
    assert cut(after_first - 1) == cut(least) == first | second
    with pytest.raises(SettingError, match=f"a worker holds {least:,} if all is cut"):
        cut(least - 1)
    with pytest.raises(SettingError, match="nothing is to be cut; accepted: less, or partition=data"):
        cut(whole)
