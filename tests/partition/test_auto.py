"""`partition: auto` takes what is predicted to be the quickest of what fits, and says why."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from _workers import joined
from volary.cli.command.main import run
from volary.errors import SettingError
from volary.partition.pipelining.plan import MOVED_BYTES_PER_S
from volary.placement import Place
from volary.session import Session
from volary.session.values.size import Size
from volary.train.afterwards import check_session
from volary.train.model import build_model
from volary.train.recording.recorder import Recorder
from volary.train.trial import try_first, try_session
from volary.train.trying import partition_choice, worker_memory
from volary.train.trying.partition_choice import Predicted
from volary.train.trying.predictions import Prediction
from volary.train.worker.rank_part import with_partition

CPU = torch.device("cpu")
WIDE = [{"linear": {"outputs": 600}}, "relu", {"linear": {"outputs": 500}}, "relu", {"linear": {"outputs": "classes"}}]
INPUTS, CLASSES, BATCH, VALUE = 784, 10, 16, 4
PARAMETERS = (INPUTS + 1) * 600 + 601 * 500 + 501 * CLASSES


def wide(workers: int = 4, batch: int = BATCH, **strategy: Any) -> Session:
    return Session(
        network={"layers": ["flatten", *WIDE]},
        data={"source": "digits", "batch_size": batch},
        optimizer="adam",
        strategy={"workers": workers, "partition": "auto", **strategy},
    )


_TRIED: dict[str, Predicted] = {}


def tried(session: Session) -> Predicted:
    """The prediction of trying it, of each session once."""
    if (known := session.digest()) not in _TRIED:
        model = build_model(session, CPU)
        found = try_session(model, CPU, session.strategy.workers, started=False).predicted
        assert found is not None
        _TRIED[known] = found
    return _TRIED[known]


def by_name(found: Predicted) -> dict[str, Prediction]:
    return {one.named: one for one in found.legal}


def test_each_legal_partition_is_predicted_by_what_it_holds_sends_and_computes():
    found = by_name(tried(wide()))
    levels = ["sharded", "{name: sharded, level: 2}", "{name: sharded, level: 3}"]
    meshes = [f"{{name: mesh, axes: {{data: 2, {name}: 2}}}}" for name in ("hybrid", "tensor", "pipeline")]
    assert list(found) == ["data", *levels, "hybrid", "tensor", *meshes], "three layers are no four stages"
    whole = VALUE * PARAMETERS
    assert found["data"].sent_bytes == 2 * 3 / 4 * whole
    assert found["{name: sharded, level: 3}"].sent_bytes == 3 * 3 / 4 * whole
    # columns, then rows: one sum forward of what the second gives; the third, of columns or rows, is by itself
    assert found["tensor"].sent_bytes < 0.1 * found["data"].sent_bytes
    data, sharded, tensor = (found[name].memory for name in ("data", "sharded", "tensor"))
    assert (data.parameters, data.gradients, data.optimizer) == (whole, whole, 2 * whole)
    assert (sharded.parameters, sharded.optimizer) == (whole, pytest.approx(2 * whole / 4, rel=0.01))
    assert tensor.parameters == pytest.approx(whole / 4, rel=0.02) and tensor.optimizer == 2 * tensor.parameters
    # all samples instead of a quarter
    assert tensor.activations == pytest.approx(4 * (data.activations or 0), rel=0.01)
    one = by_name(tried(wide(1)))["data"]
    assert one.computing_s > found["data"].computing_s > found["tensor"].computing_s


def test_a_pipeline_is_predicted_with_its_waits_and_the_worker_that_holds_most():
    found = by_name(tried(wide(2)))["pipeline"]
    whole = VALUE * PARAMETERS
    assert whole / 2 < found.memory.parameters < whole and found.sent_bytes == BATCH * VALUE * 600
    assert found.computing_s > by_name(tried(wide(1)))["data"].computing_s / 2


def test_micro_batches_read_parameters_and_add_up_their_gradients_again_and_again():
    few, many = (
        tried(wide(2, partition={"name": "pipeline", "micro_batches": count})).own.computing_s for count in (2, 16)
    )
    assert many > 2 * few, "although workers wait less"


def test_gradients_of_cut_layers_are_copied_where_workers_exchange_others():
    found = by_name(tried(wide(2)))
    more_s = found["hybrid"].computing_s - found["tensor"].computing_s
    assert more_s == pytest.approx(2 * found["hybrid"].memory.gradients / MOVED_BYTES_PER_S, rel=0.1)


def test_the_largest_batch_fits_into_the_worker_whose_activations_are_most(monkeypatch):
    monkeypatch.setattr(worker_memory, "available_bytes", lambda: 2**34)
    strategy = {"workers": 2, "partition": "pipeline"}
    lenet = Session(network="lenet", data={"source": "digits", "batch_size": BATCH}, strategy=strategy)
    memories = tried(lenet).own.memories
    first, last = (worker_memory.largest_batch([one], 2, BATCH) for one in memories)
    assert first is not None and last is not None and first < last, "convolutions are in the first stage"
    assert memories[0].total < memories[1].total, "and most parameters in the last one"
    assert check_session(lenet).largest_batch == first


def test_slow_links_change_the_choice_and_a_budget_does():
    slow, quick = (tried(wide(batch=128, partition={"name": "auto", "link_mbit": rate})) for rate in (10, 10**9))
    assert slow.own.named == "tensor" and "tensor" not in quick.own.named
    most = max(one.memory.total for one in slow.legal if one.named != "data")
    assert by_name(slow)["data"].memory.total > most
    fitting = tried(wide(batch=128, memory=f"{most}B"))
    assert fitting.own.memory.total <= most


def test_a_network_above_the_budget_in_every_partition_is_refused_with_the_least():
    with pytest.raises(
        SettingError, match=r"^strategy.memory is 1MB, and with every partition .* the least is"
    ) as said:
        tried(wide(memory="1MB"))
    least = min(tried(wide()).legal, key=lambda one: one.memory.total)
    needed = -(-least.memory.total // 2**20)
    assert f"the least is {needed} MiB, with partition={least.named}; accepted: memory={needed}MiB" in str(said.value)
    assert tried(wide(memory=f"{needed}MiB")).own.memory.total <= needed * 2**20


def test_a_partition_that_was_named_is_held_to_the_budget_too():
    data = by_name(tried(wide()))["data"].memory.total
    with pytest.raises(SettingError, match="with partition=data a worker takes more; the least is"):
        tried(wide(partition="data", memory=f"{data - 1}B"))
    assert tried(wide(partition="data", memory=f"{data}B")).own.named == "data"


def predictions(*figures: tuple[str, float, int]) -> list[Prediction]:
    """Some with these seconds a step and parameters' bytes of a worker."""
    one = tried(wide(2)).legal[0]
    empty = replace(one.memory, process=0, gradients=0, optimizer=0, activations=0)
    return [
        replace(
            one,
            session=wide(2, partition=name),
            step_s=seconds,
            memories=[replace(empty, parameters=size)],
            even=0.9 if name == "data" else 0.5,
            bound_by=("fc", 0.7),
        )
        for name, seconds, size in figures
    ]


def test_a_simpler_partition_is_taken_unless_another_is_quicker_by_more_than_5_percent():
    found = predictions(("data", 1.04, 100), ("hybrid", 1.0, 50), ("tensor", 1.02, 20))
    assert partition_choice.chosen(found, None).named == "data"
    assert partition_choice.chosen(found, Size(99)).named == "hybrid"
    assert partition_choice.chosen(found, Size(49)).named == "tensor"
    said = Predicted(found[2], found, wide(2, memory="49B").strategy).why
    assert said.endswith("about the least of the 1 partitions that fit into 49B a worker, of 3")
    quicker = [replace(found[0], step_s=1.06), *found[1:]]
    assert partition_choice.chosen(quicker, None).named == "hybrid"


def test_where_no_cut_is_even_the_layer_that_bounds_it_is_named():
    found = predictions(("data", 1.0, 1), ("tensor", 1.0, 1), ("pipeline", 1.0, 1))
    said = partition_choice.uneven(found)
    assert "a worker computes 2.0 times its share, bound by fc, which is 70% of the network; what helps" in said
    assert partition_choice.uneven([*found, replace(found[1], even=0.9)]) == ""
    assert partition_choice.uneven(found[:1]) == ""


def settled(rank: int, world_size: int) -> tuple[Any, list[Any]]:
    one, recorder = wide(2, partition={"name": "auto", "link_mbit": 10}), Recorder(rank)
    model = build_model(one, CPU)
    found = try_first(
        model,
        CPU,
        Place(launcher="local", rank=rank, local_rank=rank, world_size=world_size, node=0, attempt=0),
        recorder,
    )
    session = with_partition(model, found, joined()).session
    return session.strategy.partition, [
        said["data"]["text"] for said in recorder.events if said.get("event") == "partition"
    ]


def test_all_workers_take_what_the_first_one_chose_and_the_run_says_why(workers):
    (first, said), (second, nothing) = workers(2, settled)
    assert first == second == wide(2, partition="pipeline").strategy.partition
    assert said[0].startswith("partition auto takes pipeline: ") and nothing == []


def test_check_prints_what_each_takes_and_which_one_is_taken(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "session.yaml").write_text(wide().to_yaml())
    assert run(["check", "session.yaml"]) == 0
    said = capsys.readouterr().err
    assert "# partition=data: " in said and "# partition=tensor: " in said and "# partition auto takes " in said
    assert run(["check", "session.yaml", "--json", "strategy.partition=tensor"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert any(text.startswith("partition=tensor: ") for text in summary["partitions"])
    assert summary["holds"] and all(" MB of activations; passes " in text for text in summary["holds"])
    assert not any("auto takes" in text for text in summary["partitions"])


@pytest.mark.parametrize("strategy", [{"exchange": "server"}, {"consistency": "local"}])
def test_only_workers_that_exchange_gradients_among_themselves_choose(strategy):
    with pytest.raises(SettingError, match=r"strategy\.partition: is auto, and with"):
        wide(2, **strategy)


def test_a_run_that_goes_on_without_a_lost_worker_chooses_nothing():
    with pytest.raises(SettingError, match=r"strategy\.recover: is memory, and with partition=auto"):
        wide(2, recover="memory")
