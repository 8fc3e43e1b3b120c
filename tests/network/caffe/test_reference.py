"""Real networks with trained weights against outputs of OpenCV's importer; ../shared/caffe has them."""

import json
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from network.caffe._nets import SHARED
from volary.data.sources.idx import SOURCE as IDX
from volary.network.caffe.module import inputs_of, with_weights
from volary.network.caffe.source import read_net

CAFFE, DATA = SHARED / "caffe", SHARED / "data"
REFERENCE = CAFFE / "reference"
NETS = ("lenet", "cifar10_quick", "v1_cifar10_quick", "squeezenet_v1.1", "slim320", "mtcnn_pnet")
BAR = 1e-4  # of the largest value of a blob
COUNTS = {"lenet": 431_080, "cifar10_quick": 145_578, "v1_cifar10_quick": 145_578, "squeezenet_v1.1": 1_235_496}

pytestmark = pytest.mark.skipif(not REFERENCE.is_dir(), reason="there is no ../shared/caffe beside the checkout")


def said(name):
    return json.loads((REFERENCE / "reference.json").read_text())["nets"][name]


def given(name):
    """The network's input as ../shared/caffe/README.md prepares it."""
    ready = REFERENCE / f"{name}.input.npy"
    if ready.is_file():
        return np.load(ready)
    square = name.startswith("squeeze")
    photo = np.load(REFERENCE / f"photo_bgr_{'227x227' if square else '320x240'}.npy").astype(np.float32)
    if square:
        photo = (photo - np.array([104, 117, 123], dtype=np.float32)) / 128
    else:
        photo = (photo[..., ::-1] - 127) / 128 if name == "slim320" else (photo[..., ::-1] - 127.5) * 0.0078125
    return np.ascontiguousarray(photo.transpose(2, 0, 1)[None], dtype=np.float32)


def made(name, shape):
    net = CAFFE / said(name)["prototxt"]
    weights = net.parent / said(name)["weights"]
    source = read_net(net)
    inputs = inputs_of(source, shape)
    weights = weights if weights.is_file() else next(net.parent.glob("*.caffemodel"))
    return with_weights(source, inputs, weights)[0].eval(), next(iter(inputs))


@pytest.mark.parametrize("name", NETS)
def test_outputs_equal_those_of_another_importer(name):
    values = given(name)
    module, data = made(name, values.shape[1:])
    by_layer = {}  # theirs are named by layer: of a layer before one in place it is what that layer itself gives
    for layer, part in module.named_children():
        part.register_forward_hook(lambda _part, _given, out, layer=layer: by_layer.update({layer: out}))
    with torch.no_grad():
        module(torch.from_numpy(values))
        for blob, one in said(name)["outputs"].items():
            expected = np.load(REFERENCE / one["file"])
            found = by_layer[blob] if blob in by_layer else module.run({data: torch.from_numpy(values)}, [blob])[blob]
            away = abs(found.numpy().reshape(expected.shape) - expected).max() / abs(expected).max()
            assert away < BAR, f"{blob}: {away}"
    assert sum(one.numel() for one in module.parameters()) == COUNTS.get(name) or name not in COUNTS


def right(module, inputs, targets):
    """How many samples the network gives the right class for."""
    with torch.no_grad():
        found = [module(part).argmax(1) for part in inputs.split(1000)]
    return int((torch.cat(found) == targets).sum())


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="there is no ../shared/data/mnist beside the checkout")
def test_lenet_is_right_for_9905_of_10000_digits():
    samples = IDX(folder=DATA / "mnist", std=256 / 255).open("test")
    module, _ = made("lenet", (1, 28, 28))
    assert right(module, *samples.fetch(torch.arange(len(samples)))) == 9905


@pytest.mark.slow  # twenty seconds of convolutions
@pytest.mark.skipif(not (DATA / "cifar10").is_dir(), reason="there is no ../shared/data/cifar10 beside the checkout")
@pytest.mark.parametrize("name", ["cifar10_quick", "v1_cifar10_quick"])
def test_cifar10_quick_is_right_for_7350_of_10000_images_read_from_either_file(name):
    images, classes = [], []
    with tarfile.open(DATA / "cifar10" / "test.tar.gz") as archive:
        for member in archive:
            if member.isfile():
                images.append(np.asarray(Image.open(archive.extractfile(member))))
                classes.append(member.name.split("/")[-2])
    inputs = np.stack(images).transpose(0, 3, 1, 2).astype(np.float32) - np.load(REFERENCE / "cifar_mean_rgb.npy")
    targets = torch.tensor([sorted(set(classes)).index(one) for one in classes])
    module, _ = made(name, (3, 32, 32))
    assert right(module, torch.from_numpy(inputs), targets) == 7350
