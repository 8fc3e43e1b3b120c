"""Damaged and hostile files of Caffe's end in sentences, within a second of a processor and 200 MB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from network.caffe._nets import caffemodel, solverstate
from volary.network.caffe.reading.binary import written
from volary.network.caffe.weights.blob import blob_from

NET = """name: "net"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 16 dim: 16 } } }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 group: 1 weight_filler { type: "xavier" } } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "n" type: "LRN" bottom: "p" top: "n" lrn_param { local_size: 3 alpha: 5e-05 beta: 0.75 } }
layer { name: "s" type: "Slice" bottom: "n" top: "a" top: "b" slice_param { axis: 1 slice_point: 2 } }
layer { name: "e" type: "Eltwise" bottom: "a" bottom: "b" top: "e" eltwise_param { coeff: 1 coeff: -1 } }
layer { name: "f" type: "InnerProduct" bottom: "e" top: "f" inner_product_param { num_output: 10 } }
layer { name: "d" type: "Dropout" bottom: "f" top: "f" dropout_param { dropout_ratio: 0.5 } include { phase: TRAIN } }
"""
SOLVER = """net: "net.prototxt" base_lr: 0.01 lr_policy: "multistep" stepvalue: 10 stepvalue: 20 gamma: 0.1
momentum: 0.9 weight_decay: 0.0005 max_iter: 30 test_iter: 2 test_interval: 10 snapshot_prefix: "s" type: "SGD"
"""


def whole_files(folder: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="needs the extra hdf5")
    arrays = [np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3), np.arange(4, dtype=np.float32)]
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER)
    caffemodel(folder / "net.caffemodel", {"c": arrays})
    with h5py.File(folder / "net.caffemodel.h5", "w") as opened:
        for number, values in enumerate(arrays):
            opened.create_dataset(f"data/c/{number}", data=values)
    (folder / "mean.binaryproto").write_bytes(written(blob_from(arrays[0][:1, :, 0, :])))
    np.save(folder / "mean.npy", arrays[0][0])
    solverstate(folder / "net.solverstate", 7, "net.caffemodel", arrays)


@pytest.mark.slow  # half a minute of a processor
@pytest.mark.timeout(700)
def test_damaged_and_hostile_files_are_read_or_refused_in_sentences_within_limits(tmp_path):
    whole_files(tmp_path)
    program = Path(__file__).with_name("_damaged.py")
    command = [sys.executable, str(program), str(tmp_path), "1", "150"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, (found.stdout + found.stderr)[-5000:]
