"""Attention of torch whose heads are with different workers gives what torch's gives on one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from _workers import joined
from volary.errors import SettingError
from volary.partition import ROOM

SAMPLES, LENGTH, OTHERS, WIDTH, HEADS = 3, 5, 4, 12, 3


class Around(nn.Module):
    """Attention as a layer of a network."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **settings).double()


def calls() -> dict[str, tuple[dict[str, Any], list[Tensor], dict[str, Any]]]:
    """By name: the layer's settings, what it is given, and by name what else."""
    torch.manual_seed(1)
    x, y, z = (torch.randn(SAMPLES, length, WIDTH, dtype=torch.double) for length in (LENGTH, OTHERS, OTHERS))
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    each = torch.randn(SAMPLES * HEADS, LENGTH, OTHERS, dtype=torch.double)
    padding = torch.arange(OTHERS) >= torch.tensor([[4], [2], [3]])
    away = torch.zeros(padding.shape, dtype=torch.double).masked_fill_(padding, -torch.inf)
    first = {"batch_first": True}
    return {
        "of itself": (first, [x, x, x], {}),
        "without weights": (first, [x, x, x], {"need_weights": False}),
        "of others": (first, [x, y, z], {"average_attn_weights": False}),
        "causal": (first, [x, x, x], {"attn_mask": later, "is_causal": True, "need_weights": False}),
        "a mask for each head, and padding": (first, [x, y, y], {"attn_mask": each, "key_padding_mask": away}),
        "padding, samples second, no bias": (
            {"bias": False},
            [one.transpose(0, 1) for one in (x, y, y)],
            {"key_padding_mask": padding},
        ),
        "without samples": (first, [x[0], y[0], y[0]], {"average_attn_weights": False}),
    }


def passed(layer: nn.MultiheadAttention, given: list[Tensor], more: dict[str, Any]) -> list[Tensor]:
    """Output, weights, and the gradients of what it was given, each tensor once."""
    leaves = {id(one): one.detach().clone().requires_grad_() for one in given}
    output, weights = layer(*(leaves[id(one)] for one in given), **more)
    total = output.square().sum() + (weights.square().sum() if weights is not None else 0)
    total.backward()
    return [output.detach(), *([] if weights is None else [weights.detach()]), *(one.grad for one in leaves.values())]


def cut(rank: int, world_size: int) -> None:
    for attempt, (name, (settings, given, more)) in enumerate(calls().items()):
        torch.manual_seed(2)
        whole = Around(**settings)
        mine = copy.deepcopy(whole)
        part = ROOM.load("tensor")().part(mine, rank, world_size)
        assert part.join is not None
        part.join(joined(attempt))
        expected, found = passed(whole.attention, given, more), passed(mine.attention, given, more)
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            torch.testing.assert_close(
                one, other, msg=lambda text, name=name, number=number: f"{name} {number}: {text}"
            )
        own, wholes = part.holdings.blocks, dict(whole.named_parameters())
        assert len(own) == (3 if settings.get("bias", True) else 2), name
        for parameter, values in mine.named_parameters():
            wanted = wholes[parameter].grad
            wanted = own[parameter].taken_from(wanted) if parameter in own else wanted
            torch.testing.assert_close(values.grad, wanted, msg=lambda text, name=name: f"{name}: {text}")


def test_heads_of_two_workers_give_outputs_weights_and_gradients_of_torch_s_attention(workers):
    workers(2, cut)


def test_attention_is_cut_where_it_has_heads_for_all_workers_and_nothing_is_added_to_its_keys():
    def names(ranks: int, **settings: Any) -> set[str]:
        plan = ROOM.load("tensor")()
        module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Around(**settings))
        return {block.name for block in plan.part(module, 0, ranks).holdings.blocks.values()} - {"0.weight", "0.bias"}

    inside = {f"1.attention.{name}" for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight")}
    assert names(3) == inside and names(4) == names(2, kdim=6) == names(2, add_zero_attn=True) == set()


@pytest.mark.parametrize(
    ("plan", "ranks", "said"),
    [
        ({"attention": "row"}, 2, "plan cuts attention by row, and it is a MultiheadAttention; accepted: heads"),
        (
            {"attention": "heads"},
            4,
            "plan cuts attention by heads, of which it has 3, over 4 workers; accepted: to leave",
        ),
    ],
)
def test_what_attention_cannot_be_cut_by_is_refused(plan, ranks, said):
    with pytest.raises(SettingError, match=said):
        ROOM.load("tensor")(plan=plan).part(Around(), 0, ranks)
