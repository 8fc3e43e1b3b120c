"""Every published network has the published number of parameters, and takes and gives what it says."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from volary.errors import SettingError
from volary.network import Network, build
from volary.network.zoo import ROOM
from volary.session.reading.problems import SessionError
from volary.session.spec import Session

DOCS = Path(__file__).parents[2] / "docs" / "networks.md"
PHOTO, TOKENS = (3, 224, 224), (35,)
OF_TOKENS = ("gpt", "lstm")
OTHERS = (*ROOM.by_setting, *ROOM.by_prefix)  # these have what their files say, or their packages
NAMES = [name for name in ROOM.names() if name not in OTHERS]

# name -> (parameters, input shape, classes, where the number is published)
PUBLISHED: dict[str, tuple[int, tuple[int, ...], int, str]] = {
    "softmax": (7_850, (1, 28, 28), 10, "784 x 10 + 10, TensorFlow's and Theano's MNIST tutorials"),
    "lenet": (431_080, (1, 28, 28), 10, "BVLC/caffe lenet_iter_10000.caffemodel"),
    "cifar10_quick": (145_578, (3, 32, 32), 10, "BVLC/caffe cifar10_quick_iter_5000.caffemodel"),
    "alexnet": (60_965_224, (3, 227, 227), 1000, "BVLC/caffe bvlc_alexnet; 60 million in Krizhevsky et al. 2012"),
    "vgg": (138_357_544, PHOTO, 1000, "Keras and torchvision vgg16; 138 million in Simonyan & Zisserman, table 2"),
    "googlenet": (6_998_552, PHOTO, 1000, "BVLC/caffe bvlc_googlenet deploy.prototxt, without auxiliary heads"),
    "inception_v3": (23_834_568, (3, 299, 299), 1000, "torchvision inception_v3 without its auxiliary head"),
    "resnet": (25_557_032, PHOTO, 1000, "torchvision resnet50"),
    "lstm": (19_780_400, TOKENS, 10_000, "20 million: Zaremba et al. 2014, medium, as counted by Merity et al. 2017"),
    "gpt": (10_745_088, (256,), 65, "nanoGPT's train_shakespeare_char.py: 10.65 million, and 256 x 384 for positions"),
    "speech": (41_777_152, (11, 40), 8192, "42 million: Dean et al. 2012, section 5"),
}
# name, settings, parameters, input shape, classes, source
VARIANTS: list[tuple[str, dict[str, Any], int, tuple[int, ...], int, str]] = [
    ("googlenet", {"auxiliary": True}, 13_378_280, PHOTO, 1000, "BVLC/caffe bvlc_googlenet.caffemodel"),
    ("inception_v3", {"auxiliary": True}, 27_161_264, (3, 299, 299), 1000, "torchvision inception_v3"),
    ("vgg", {"depth": 11}, 132_863_336, PHOTO, 1000, "torchvision vgg11"),
    ("vgg", {"depth": 13}, 133_047_848, PHOTO, 1000, "torchvision vgg13"),
    ("vgg", {"depth": 19}, 143_667_240, PHOTO, 1000, "Keras and torchvision; 144 million in Simonyan & Zisserman"),
    ("resnet", {"depth": 18}, 11_689_512, PHOTO, 1000, "torchvision resnet18"),
    ("resnet", {"depth": 34}, 21_797_672, PHOTO, 1000, "torchvision resnet34"),
    ("resnet", {"depth": 101}, 44_549_160, PHOTO, 1000, "torchvision resnet101"),
    ("resnet", {"depth": 152}, 60_192_808, PHOTO, 1000, "torchvision resnet152"),
    ("resnet", {"depth": 18}, 11_173_962, (3, 32, 32), 10, "kuangliu/pytorch-cifar: 3 x 3 stem"),
    (
        *("gpt", {"layers": 12, "heads": 12, "width": 768, "bias": True}),
        *(124_439_808, (1024,), 50_257, "Hugging Face's gpt2; 124 million in the model card"),
    ),
    ("lstm", {"hidden": 1500}, 66_034_000, TOKENS, 10_000, "66 million: Zaremba et al. 2014, large"),
    ("lstm", {"hidden": 1500, "tied": True}, 51_034_000, TOKENS, 10_000, "51 million: Press & Wolf 2017"),
]
SMALLEST = {
    "softmax": (1,),
    "lenet": (1, 16, 16),
    "cifar10_quick": (3, 8, 8),
    "alexnet": (3, 67, 67),
    "vgg": (3, 32, 32),
    "googlenet": (3, 32, 32),
    "inception_v3": (3, 75, 75),
    "resnet": (3, 8, 8),
    "gpt": (1,),
    "lstm": (1,),
    "speech": (1,),
}


def made(name: str, shape: tuple[int, ...], classes: int, device: str = "meta", **settings: Any) -> nn.Module:
    with torch.device(device):
        return build(ROOM.load(name)(**settings), shape, classes)


def batch(name: str, shape: tuple[int, ...], device: str = "meta") -> torch.Tensor:
    return torch.zeros(2, *shape, dtype=torch.int64 if name in OF_TOKENS else torch.float32, device=device)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_as_published(name: str) -> None:
    assert name in PUBLISHED, f"give {name} a row in PUBLISHED: its parameters and where they are published"
    count, shape, classes, _ = PUBLISHED[name]
    assert parameters(made(name, shape, classes)) == count


@pytest.mark.parametrize(("name", "settings", "count", "shape", "classes", "source"), VARIANTS)
def test_parameters_of_variants_are_as_published(
    name: str, settings: dict[str, Any], count: int, shape: tuple[int, ...], classes: int, source: str
) -> None:
    assert parameters(made(name, shape, classes, **settings)) == count


@pytest.mark.parametrize("name", NAMES)
def test_every_network_has_a_row_with_its_parameters_in_the_docs(name: str) -> None:
    row = re.search(rf"^\| `{name}` \|.*$", DOCS.read_text(), re.MULTILINE)
    assert row, f"docs/networks.md has no row for {name}"
    assert f"{PUBLISHED[name][0]:,}" in row[0]


@pytest.mark.parametrize("name", NAMES)
def test_output_has_one_score_per_class_on_the_published_input(name: str) -> None:
    _, shape, classes, _ = PUBLISHED[name]
    output = made(name, shape, classes)(batch(name, shape))
    assert output.shape == ((2, *shape, classes) if name in OF_TOKENS else (2, classes))


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_input_works_and_classes_are_free(name: str) -> None:
    assert name in SMALLEST, f"give {name} a row in SMALLEST"
    output = made(name, SMALLEST[name], 7)(batch(name, SMALLEST[name]))
    assert output.shape[-1] == 7


@pytest.mark.parametrize("name", [name for name, shape in SMALLEST.items() if len(shape) == 3])
def test_a_smaller_image_is_refused_in_one_sentence(name: str) -> None:
    channels, side, _ = SMALLEST[name]
    with pytest.raises(SettingError, match=rf"^network '{name}' takes images .* at least {side} x {side} pixels"):
        made(name, (channels, side - 1, side), 10)
    with pytest.raises(SettingError, match=r"the input shape is \(784,\)"):
        made(name, (784,), 10)


@pytest.mark.parametrize(
    ("name", "shape", "settings"),
    [
        ("softmax", (1, 8, 8), {}),
        ("lenet", (1, 17, 30), {}),
        ("cifar10_quick", (3, 33, 20), {}),
        ("alexnet", (1, 68, 70), {}),
        ("googlenet", (3, 79, 90), {"auxiliary": True}),
        ("googlenet", (1, 32, 40), {}),
        ("resnet", (1, 16, 24), {"depth": 18}),
        ("resnet", (3, 70, 65), {"depth": 18}),
        ("resnet", (3, 32, 32), {"stem": "imagenet"}),
        ("lstm", (5,), {"hidden": 8, "embedding": 4, "layers": 1}),
        ("lstm", (5,), {"hidden": 8, "tied": True}),
        ("gpt", (5,), {"layers": 1, "heads": 2, "width": 8}),
        ("gpt", (5,), {"layers": 1, "heads": 2, "width": 8, "context": 7, "bias": True, "tied": False}),
        ("gpt", (5,), {"layers": 1, "heads": 2, "width": 8, "documents": True}),
        ("speech", (3, 4), {"hidden": 8, "layers": 2}),
    ],
)
def test_odd_shapes_train_on_the_cpu(name: str, shape: tuple[int, ...], settings: dict[str, Any]) -> None:
    network = made(name, shape, 10, device="cpu", **settings)
    output = network(batch(name, shape, "cpu"))
    outputs = output if isinstance(output, tuple) else (output,)
    torch.stack([each.sum() for each in outputs]).sum().backward()
    assert all(each.shape[-1] == 10 and each.isfinite().all() for each in outputs)
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize(("name", "heads", "shape"), [("googlenet", 2, PHOTO), ("inception_v3", 1, (3, 299, 299))])
def test_auxiliary_heads_answer_in_training_only(name: str, heads: int, shape: tuple[int, ...]) -> None:
    network = made(name, shape, 10, auxiliary=True)
    assert [tuple(each.shape) for each in network(batch(name, shape))] == [(2, 10)] * (heads + 1)
    assert network.eval()(batch(name, shape)).shape == (2, 10)


def test_resnet_takes_the_cifar_stem_up_to_64_pixels_unless_told() -> None:
    def stem(side: int, choice: str) -> tuple[int, ...]:
        return tuple(next(made("resnet", (3, side, side), 10, stem=choice).parameters()).shape[2:])

    assert stem(64, "auto") == stem(224, "cifar") == (3, 3)
    assert stem(65, "auto") == stem(32, "imagenet") == (7, 7)


def test_settings_of_every_network_are_read_without_torch() -> None:
    """A weighted loss is left out: it must be told its parts."""
    script = (
        "import sys; from volary.network import losses, zoo\n"
        "rooms = [(room.ROOM, name) for room in (zoo, losses) for name in room.ROOM.names()]\n"
        "bare = [one for one in rooms if one[1] not in (*one[0].by_setting, *one[0].by_prefix, 'weighted')]\n"
        "made = [room.load(name)() for room, name in bare]\n"
        "assert len(made) > 12; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("lenet", {"classes": 0}, "classes is 0; accepted: a whole number from 1"),
        ("lenet", {"input_shape": (1, 0)}, r"input_shape is \(1, 0\); accepted: whole numbers above 0"),
        ("alexnet", {"dropout": 1.0}, "dropout is 1.0; accepted: from 0, below 1"),
        ("vgg", {"dropout": -1}, "dropout is -1; accepted"),
        ("resnet", {"stem": "big"}, "stem is 'big'; accepted: auto, imagenet, cifar"),
        ("lstm", {"layers": 0}, "layers is 0; accepted: a whole number from 1"),
        ("lstm", {"tied": True, "embedding": 3}, "embedding is 3; tied needs it equal to hidden, 650"),
        ("vgg", {"depth": 17}, "depth is 17; accepted: 11, 13, 16, 19"),
        ("gpt", {"width": 100}, "width is 100; accepted: a multiple of heads, 6"),
        ("gpt", {"context": 0}, "context is 0; accepted: a whole number from 1"),
        ("speech", {"hidden": 0}, "hidden is 0; accepted: a whole number from 1"),
    ],
)
def test_unfit_settings_are_refused_in_one_sentence(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        ROOM.load(name)(**settings)


@pytest.mark.parametrize("name", OF_TOKENS)
def test_networks_of_tokens_refuse_images(name: str) -> None:
    with pytest.raises(SettingError, match=r"takes sequences of tokens \(time,\); the input shape is \(1, 28, 28\)"):
        made(name, (1, 28, 28), 10)


def test_a_gpt_sees_no_later_token_and_refuses_more_of_them_than_its_context() -> None:
    torch.manual_seed(1)
    network = made("gpt", (6,), 10, device="cpu", layers=2, heads=2, width=8).eval()
    tokens = torch.randint(10, (1, 6))
    other = torch.cat([tokens[:, :4], (tokens[:, 4:] + 1) % 10], 1)
    scores, others = network(tokens), network(other)
    torch.testing.assert_close(scores[:, :4], others[:, :4])
    assert not torch.allclose(scores[:, 4:], others[:, 4:])
    with pytest.raises(SettingError, match="a context of 6 tokens; a sequence has 7"):
        network(torch.zeros(1, 7, dtype=torch.int64))
    with pytest.raises(SettingError, match="context is 4; the data's sequences have 6 tokens"):
        made("gpt", (6,), 10, context=4)


def test_documents_that_are_packed_have_the_scores_and_gradients_that_each_has_alone() -> None:
    torch.manual_seed(1)
    network = made("gpt", (9,), 10, device="cpu", layers=2, heads=2, width=8, dropout=0.0, documents=True).double()
    packed = torch.tensor([[1, 2, 3, 9, 4, 5, 9, 6, 7], [9, 1, 1, 1, 1, 1, 1, 9, 9]])
    alone = [packed[:1, :4], packed[:1, 4:7], packed[:1, 7:], packed[1:, :1], packed[1:, 1:8], packed[1:, 8:]]
    found = network(packed).flatten(0, 1)
    wanted = torch.cat([network(document).squeeze(0) for document in alone])
    torch.testing.assert_close(found, wanted)
    seen = found.exp().sum(), wanted.exp().sum()
    gradients = [torch.autograd.grad(one, list(network.parameters())) for one in seen]
    torch.testing.assert_close(*gradients)
    without = made("gpt", (9,), 10, device="cpu", layers=2, heads=2, width=8, dropout=0.0).double()
    without.load_state_dict(network.state_dict())
    assert not torch.allclose(without(packed), network(packed))


@pytest.mark.parametrize("name", ROOM.aliases)
def test_a_network_s_usual_name_stands_for_its_depth(name: str) -> None:
    network = Session(network={"name": name, "input_shape": [3, 40, 40]}, data={"source": "digits"}).network
    assert isinstance(network, Network)
    assert f"{ROOM.unfolded(name)[0]}{getattr(network, 'depth', None)}" == name
    with pytest.raises(SessionError, match=rf"network.depth: is \d+ where the name is '{name}'; accepted: "):
        Session(network={"name": name, "depth": 18}, data={"source": "digits"})


def test_every_network_is_a_network() -> None:
    assert all(issubclass(ROOM.load(name), Network) for name in ROOM.names())
