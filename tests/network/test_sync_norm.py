"""Batch norms over all workers are one process's over the whole batch, whatever part of it each has."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from _workers import joined
from volary.comm.groups.blocking import gather
from volary.errors import SettingError
from volary.network.operations.sync_norm import NormPeers, SynchronisedNorm, synchronise
from volary.session import Session
from volary.train.model import build_model

SHARES = (
    (slice(0, 5), slice(5, 6), slice(6, 6)),
    (slice(0, 0), slice(0, 4), slice(4, 6)),
)  # of 6 samples, for 3 workers


def network() -> nn.Module:
    torch.manual_seed(3)
    layers = (nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4, momentum=None))
    return nn.Sequential(*layers).double()


def batches() -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(4)
    return [(torch.randn(6, 2, 6, 6).double() * 3 + 1, torch.randn(6, 4, 3, 3).double()) for _ in SHARES]


def learnt(module: nn.Module, parts: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Outputs, gradients, also of inputs, and statistics."""
    found = {}
    for number, (inputs, wanted) in enumerate(parts):
        inputs = inputs.clone().requires_grad_()
        outputs = module(inputs)
        (outputs * wanted).sum().backward()
        found |= {f"outputs {number}": outputs.detach(), f"inputs {number}": inputs.grad}
    found |= {f"gradient {name}": one.grad for name, one in module.named_parameters()}
    return found | {f"buffer {name}": one for name, one in module.named_buffers()}


def in_shares(rank: int, world_size: int) -> dict[str, Tensor]:
    group, module = joined(), network()
    before = {name: id(one) for name, one in [*module.named_parameters(), *module.named_buffers()]}
    assert synchronise(module, NormPeers(lambda values: gather(values, group))) == 2
    assert {name: id(one) for name, one in [*module.named_parameters(), *module.named_buffers()]} == before
    own = [tuple(part[shares[rank]] for part in batch) for batch, shares in zip(batches(), SHARES, strict=True)]
    with pytest.raises(SettingError, match="a single value a channel over all workers"):
        SynchronisedNorm(nn.BatchNorm1d(2), module[1]._peers)(torch.zeros(int(rank == 1), 2))
    return learnt(module, own)


def test_shares_of_any_size_have_the_outputs_gradients_and_statistics_of_the_whole_batch(workers):
    everyone, alone = workers(3, in_shares), learnt(network(), batches())
    for name, expected in alone.items():
        if name.startswith(("outputs", "inputs")):
            found = torch.cat([one[name] for one in everyone])
        elif name.startswith("gradient"):
            found = torch.stack([one[name] for one in everyone]).sum(0)
        else:
            assert all(torch.equal(one[name], everyone[0][name]) for one in everyone[1:]), name
            found = everyone[0][name]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        (
            {"exchange": "server"},
            "train.sync_batch_norm is true, and with exchange=server portions",
        ),
        ({"consistency": "local"}, "with consistency=local workers' networks differ"),
        ({"consistency": "gossip"}, "with consistency=gossip workers' networks differ"),
        ({"partition": "tensor"}, "with partition=tensor workers hold parts of one network; accepted: partition=data"),
    ],
)
def test_where_workers_do_not_run_one_network_it_is_refused(strategy, says):
    settings = {"network": "resnet18", "data": {"source": "digits"}, "train": {"sync_batch_norm": True}}
    with pytest.raises(SettingError, match=says):
        Session(**settings, strategy={"workers": 2, **strategy})


@pytest.mark.parametrize("setting", [{"compile": True}, {"recompute": ["fc"]}])
def test_layers_that_run_in_an_order_of_their_own_are_refused(setting):
    with pytest.raises(SettingError, match="do not run in one order on all workers; accepted: one of the two"):
        Session(network="resnet18", data={"source": "digits"}, train={"sync_batch_norm": True, **setting})


def test_a_network_without_a_batch_norm_is_refused():
    session = Session(network="lenet", data={"source": "digits"}, train={"sync_batch_norm": True})
    with pytest.raises(SettingError, match="network 'lenet' has no batch norm in it; accepted: false"):
        build_model(session, torch.device("cpu"))


def test_a_copy_of_a_network_normalises_with_the_same_workers():
    module = network()
    synchronise(module, NormPeers(lambda values: values.unsqueeze(0)))
    inputs, _ = batches()[0]
    torch.testing.assert_close(copy.deepcopy(module)(inputs), network()(inputs))
