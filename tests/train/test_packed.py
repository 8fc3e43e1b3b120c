"""A state in one run of bytes, and back."""

from __future__ import annotations

import torch

from volary.train.recovery.packed import packed, unpacked


def test_a_state_of_any_types_and_shapes_comes_back_and_memory_is_used_again():
    state = {
        "steps": torch.tensor(7.0),
        "none": torch.empty(0, 3),
        "parts": [["fc.weight", 0, 5, {"m": torch.arange(10.0)[::2], "half": torch.ones(3, dtype=torch.bfloat16)}]],
        3: (True, None, "x", 0.1, torch.arange(4, dtype=torch.int64).view(2, 2).t()),
    }
    first = packed(state, torch.empty(0, dtype=torch.uint8))
    again = packed(state, first)
    assert again is first
    found = unpacked(first)
    assert found.keys() == state.keys()
    assert found["steps"] == 7 and found["none"].shape == (0, 3)
    name, start, end, each = found["parts"][0]
    assert (name, start, end) == ("fc.weight", 0, 5)
    assert each["m"].tolist() == [0, 2, 4, 6, 8] and each["half"].dtype == torch.bfloat16
    assert found[3][:4] == (True, None, "x", 0.1) and found[3][4].tolist() == [[0, 2], [1, 3]]
