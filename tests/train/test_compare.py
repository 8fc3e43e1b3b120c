"""All ranks compare code, settings, network and data before the first step."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from _workers import joined
from train._training import session
from volary.comm.groups.group import Bulletin
from volary.errors import RanksDiffer
from volary.session.values.reference import UserObject
from volary.train.member.compare import Facts, code_facts, compare, setting_facts, shape_facts


def refused(bulletin: Bulletin, topic: str, facts: Facts) -> str:
    with pytest.raises(RanksDiffer) as found:
        compare(bulletin, topic, facts)
    return str(found.value)


def compare_everything(rank: int, world_size: int) -> list[str]:
    bulletin = joined().bulletin
    mine = session("Exact")
    compare(bulletin, "equal", code_facts({}) | setting_facts(mine.settings()) | shape_facts(nn.Linear(2, 3)))

    other = session("Exact", optimizer={"name": "sgd", "lr": 0.1 if rank == 1 else 0.2})
    said = [refused(bulletin, "setting", setting_facts(other.settings()))]

    network = nn.Sequential(nn.Linear(2, 3 if rank == 2 else 4), nn.Linear(4, 1))
    if rank == 0:
        network[1].bias.requires_grad_(requires_grad=False)
    said.append(refused(bulletin, "shapes", shape_facts(network)))

    folder = Path(f"of-rank-{rank}")
    folder.mkdir()
    (folder / "mine.py").write_text(f"def Net():  # rank {rank % 2}\n    pass\n")
    (folder / "module_of_mine.py").write_text(f"def Net():  # rank {rank}\n    pass\n")
    mine_too = {
        "network": UserObject.found_from("mine.py:Net", folder, {}),
        "loss": UserObject.found_from("module_of_mine:Net", folder, {}),
        "optimizer": UserObject.found_from("torch.optim:NAdam", folder, {}),
    }
    said.append(refused(bulletin, "code", code_facts(mine_too)))
    said.append(refused(bulletin, "many", {f"setting {number}": str(rank) for number in range(20)}))
    return said


def test_a_difference_is_a_table_of_who_differs_in_what_on_every_rank(workers):
    everyone = workers(3, compare_everything)
    setting, shapes, code, many = everyone[0]
    assert setting.splitlines() == [
        "ranks differ, so nothing was started:",
        "  setting optimizer.lr: rank 0, 2: 0.2; rank 1: 0.1",
    ]
    assert shapes.splitlines() == [
        "ranks differ, so nothing was started:",
        "  parameter 0.weight: rank 0, 1: (4, 2) float32; rank 2: (3, 2) float32",
        "  parameter 0.bias: rank 0, 1: (4,) float32; rank 2: (3,) float32",
        "  parameter 1.bias: rank 0: (1,) float32 frozen; rank 1, 2: (1,) float32",
    ]
    assert [line.partition(":")[0].strip() for line in code.splitlines()[1:]] == ["code of network", "code of loss"]
    assert "code of network: rank 0, 2: " in code, "a file"
    assert "code of loss: rank 0: " in code, "a module beside the session"
    assert many.splitlines()[-1] == "  and 8 more"
    assert everyone[1:] == everyone[:1] * 2
