"""A checkpoint's files: what other tools read of them, and that they are never in memory whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from volary.run.checkpoints import Checkpoints
from volary.run.content import whole
from volary.sharding.ranges import Range
from volary.train.state.state_file import StateContent, unpacked
from volary.train.state.weights import TensorSlice, weights_content

MIB = 2**20


def test_weights_are_written_as_the_safetensors_library_would():
    tensors = {"fc.weight": torch.randn(5, 3), "fc.bias": torch.randn(3), "loss": torch.tensor(2.5)}
    assert whole(weights_content(tensors)) == safetensors.torch.save(tensors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_weights_of_any_type_and_layout_are_read_by_the_library(dtype):
    base = torch.arange(24).view(2, 3, 4) % 2
    tensors = {
        "turned": base.to(dtype).transpose(0, 2),
        "part": base.to(dtype)[:, 1:2],
        "none": torch.empty(0, 3, dtype=dtype),
        "shared": base.to(dtype).view(-1),
        "wider": torch.ones(3),
    }
    found = safetensors.torch.load(whole(weights_content(tensors)))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name].float(), tensor.float())


def test_a_slice_is_written_with_the_tensor_that_it_is_of():
    like = torch.empty(4, 6)
    sliced = whole(weights_content({}, [TensorSlice(Range("fc.weight", 6, 12), torch.arange(6.0), like)]))
    assert torch.equal(safetensors.torch.load(sliced)["fc.weight[6:12]"], torch.arange(6.0))


def test_what_the_format_has_no_name_for_is_refused():
    with pytest.raises(TypeError, match=r"fc is torch\.complex128, .*; accepted: dense, and F64, F32"):
        whole(weights_content({"fc": torch.ones(2, dtype=torch.complex128)}))


def test_a_disk_that_fills_up_amid_a_file_of_torch_s_is_an_error_that_says_how_much_was_needed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.begin(1)
    (tmp_path / ".step-00000001" / "state.pt").symlink_to("/dev/full")
    content = StateContent({"values": torch.ones(MIB)})
    with pytest.raises(OSError, match=r"state\.pt: No space left on device \(needs ([\d,]+) bytes; ") as caught:
        checkpoints.write(1, "state.pt", content)
    assert f"needs {len(whole(content)):,} bytes" in str(caught.value)


SAVES = """
import sys
from pathlib import Path

import torch

from volary.run.checkpoints import Checkpoints
from volary.train.state.state_file import StateContent
from volary.train.state.weights import weights_content


def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


checkpoints = Checkpoints(Path(sys.argv[1]))
checkpoints.begin(0), checkpoints.write(0, "x", StateContent({"x": torch.ones(1)}))
tensors = {f"layer{number}.weight": torch.randn(4 << 20) for number in range(8)}
before = peak()
checkpoints.begin(1)
sums = {"model": checkpoints.write(1, "model", weights_content(tensors))}
sums["state"] = checkpoints.write(1, "state", StateContent(tensors))
checkpoints.commit(1, 1, sums, None)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux's /proc")
def test_a_checkpoint_takes_no_memory_beside_what_it_saves(tmp_path):
    """134 MB in tensors of 16 MiB each, twice; before, each file was in memory whole."""
    done = subprocess.run(
        [sys.executable, "-c", SAVES, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 8 * MIB
    manifest = Checkpoints(tmp_path).verify(1)
    state = unpacked(tmp_path / "step-00000001" / "state", Path("state"))
    assert (len(manifest.files), sum(one.numel() for one in state.values())) == (2, 32 << 20)
