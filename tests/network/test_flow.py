"""Flows share one module, cost nothing, take an empty batch, and say before training what does not fit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from volary.errors import SettingError
from volary.network import build, build_loss
from volary.network.flow import Flow
from volary.network.losses.cross_entropy import CrossEntropy
from volary.network.losses.mse import MeanSquaredError
from volary.network.zoo import ROOM


def flow(module: nn.Module, loss: Any = None, name: str = "train") -> Flow:
    return Flow(module, build_loss(loss or CrossEntropy()), name)


def normed() -> nn.Sequential:
    """A network with everything that has a mode: batch norm and dropout."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


def samples(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, targets: tuple[int, ...] = ()) -> Any:
    """Two inputs of this shape, and their classes: 0, also at each place of `targets`."""
    return torch.zeros(2, *shape, dtype=dtype), torch.zeros(2, *targets, dtype=torch.int64)


def state_of(module: nn.Module) -> list[Tensor]:
    return [value.clone() for value in module.state_dict().values()]


def same(before: list[Tensor], after: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_a_flow_gives_the_mean_loss_of_its_module() -> None:
    module = nn.Linear(3, 2)
    inputs, targets = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    assert torch.equal(flow(module)(inputs, targets), nn.functional.cross_entropy(module(inputs), targets))


def test_two_flows_share_one_module() -> None:
    module = nn.Linear(3, 2)
    train, evaluate = flow(module), flow(module, nn.CrossEntropyLoss, "evaluate")
    assert train.module is evaluate.module is module
    inputs, targets = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    train(inputs, targets).backward()
    with torch.no_grad():
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad)
    assert torch.equal(train(inputs, targets), evaluate(inputs, targets))


def test_an_empty_batch_gives_zero_gradients_and_runs_nothing() -> None:
    module = normed()
    module.register_parameter("scale", nn.Parameter(torch.tensor(float("nan"))))
    module[0].bias.requires_grad_(False)
    before = state_of(module[1])
    loss = flow(module)(torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    loss.backward()
    assert (loss.item(), loss.shape) == (0, ())
    gradients = [parameter.grad for parameter in module.parameters() if parameter.requires_grad]
    assert all(grad is not None and not grad.any() for grad in gradients)
    assert module[0].bias.grad is None
    assert same(before, state_of(module[1]))


def test_an_empty_batch_reaches_every_parameter_s_hook() -> None:
    module, seen = normed(), []
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    flow(module)(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)).backward()
    assert sorted(seen) == sorted(name for name, _ in module.named_parameters())


def test_measuring_changes_neither_state_nor_modes() -> None:
    module = normed()
    module[1].eval()  # a frozen batch norm stays frozen
    before = state_of(module)
    inputs, targets = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    first, second = (flow(module).measure(inputs, targets) for _ in range(2))
    assert torch.equal(first, second), "dropout was on"
    assert not first.requires_grad
    assert same(before, state_of(module))
    assert [part.training for part in module.modules()] == [True, True, False, True, True]


def test_modes_are_restored_when_measuring_fails() -> None:
    module = normed()
    with pytest.raises(RuntimeError):
        flow(module).measure(torch.randn(5, 9), torch.zeros(5, dtype=torch.int64))
    assert all(part.training for part in module.modules())


def test_totals_add_up_over_batches_and_an_empty_one() -> None:
    evaluate = flow(nn.Linear(3, 2))
    inputs, targets = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    totals = evaluate.no_totals()
    for part in (slice(0, 3), slice(3, 5), slice(5, 5)):
        totals = totals + evaluate.measure(inputs[part], targets[part])
    figures = evaluate.figures(totals)
    assert figures["loss"] == pytest.approx(evaluate(inputs, targets).item())
    assert figures["accuracy"] * 5 == pytest.approx(round(figures["accuracy"] * 5))
    assert evaluate.figures(evaluate.no_totals()) == pytest.approx({"accuracy": float("nan")}, nan_ok=True)


def test_a_dry_run_passes_what_fits_and_changes_nothing() -> None:
    module = normed()
    before, generator = state_of(module), torch.get_rng_state()
    flow(module).dry_run(*samples((3,)), 2)
    assert same(before, state_of(module))
    assert torch.equal(generator, torch.get_rng_state())
    assert all(part.training for part in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "dtype"), [("lenet", (1, 28, 28), torch.float32), ("lstm", (6,), torch.int64)]
)
def test_a_dry_run_takes_networks_of_the_zoo(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    targets = shape if dtype is torch.int64 else ()
    flow(build(ROOM.load(name)(), shape, 10)).dry_run(*samples(shape, dtype, targets), 10, network=name)


def test_a_dry_run_has_memory_for_one_gradient_at_a_time() -> None:
    module = normed()
    counts: list[int] = []

    def count(_: Tensor) -> None:
        counts.append(sum(one.grad is not None for one in module.parameters()))

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(count)
    flow(module).dry_run(*samples((3,)), None)
    assert counts == [1] * len(list(module.parameters()))


def test_a_dry_run_on_the_meta_device_needs_no_memory() -> None:
    with torch.device("meta"):
        module = build(ROOM.load("vgg")(), (3, 224, 224), 1000)
    inputs, targets = (each.to("meta") for each in samples((3, 224, 224)))
    flow(module).dry_run(inputs, targets, 1000, network="vgg16")
    with pytest.raises(SettingError, match="network 'vgg16' does not take the data's inputs"):
        flow(module).dry_run(inputs[:, :, :64, :64], targets, 1000, network="vgg16")


class Merging(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1, 2)


class Unwritten(nn.Module):
    pass


@pytest.mark.parametrize(
    ("module", "shape", "classes", "sentence"),
    [
        (nn.Linear(3, 2), (4,), 2, r"^network 'mine' does not take .* shape \(samples, 4\) and type float32: .+"),
        (nn.Linear(3, 2), (3,), 5, "^network 'mine' gives 2 outputs but the data has 5 classes$"),
        (nn.Linear(3, 2), (2, 2, 3), 2, r"^network 'mine' gives shape \(samples, 2, 2, 2\); cross_entropy takes"),
        (Merging(), (6,), 2, r"^network 'mine' gives shape \(6, 2\) for 2 samples; the first size"),
        (Unwritten(), (6,), 2, 'does not take .*missing the required "forward" function'),
        (nn.Embedding(4, 2), (6,), 2, "does not take .* type float32: Expected tensor for argument"),
    ],
)
def test_a_dry_run_refuses_what_does_not_fit_in_one_sentence(
    module: nn.Module, shape: tuple[int, ...], classes: int, sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence) as refusal:
        flow(module).dry_run(*samples(shape), classes, network="mine")
    assert "\n" not in str(refusal.value)


def test_a_dry_run_compares_with_the_targets_where_they_are_known() -> None:
    with pytest.raises(SettingError, match=r"mse takes the shape of the data's targets, \(samples\)"):
        flow(nn.Linear(3, 1), MeanSquaredError()).dry_run(*samples((3,)), 1, network="mine")


def test_lenet_learns_a_handful_of_images() -> None:
    torch.manual_seed(1)
    train = flow(build(ROOM.load("lenet")(), (1, 16, 16), 2))
    inputs, targets = torch.rand(8, 1, 16, 16), torch.arange(8) % 2
    inputs[targets == 1, :, 8:] = 0  # half of them are dark below
    optimizer = torch.optim.SGD(train.module.parameters(), lr=0.05)
    for _ in range(10):
        optimizer.zero_grad()
        train(inputs, targets).backward()
        optimizer.step()
    assert train.figures(train.measure(inputs, targets))["accuracy"] == 1


class LoopCheckpoints(nn.Module):
    """Keeps what no checkpoint knows of: a hidden state, a count, a buffer that forward replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)
        self.hidden: Tensor | None = None
        self.calls = 0
        self.register_buffer("mean", torch.zeros(2))
        self.fc.bias.grad = torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(self.fc(x))
        self.calls += 1
        self.hidden, self.seen, self.mean = found, found, found.detach().mean(0)
        return found


@pytest.mark.parametrize("targets", [(), (7,)])
def test_a_dry_run_leaves_what_a_network_keeps_as_it_was_also_when_it_fails(targets: tuple[int, ...]) -> None:
    module = LoopCheckpoints()
    before, buffer = state_of(module), module.mean
    if targets:
        with pytest.raises(SettingError):
            flow(module).dry_run(*samples((3,), targets=targets), 2)
    else:
        flow(module).dry_run(*samples((3,)), 2)
    assert same(before, state_of(module))
    assert (module.hidden, module.calls, hasattr(module, "seen")) == (None, 0, False)
    assert module.mean is buffer
    assert module.fc.weight.grad is None
    assert torch.equal(module.fc.bias.grad, torch.ones(2))  # type: ignore[arg-type]


def test_a_dry_run_takes_the_auxiliary_answers_that_only_training_gives() -> None:
    class Helped(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            found = super().forward(x)
            return (found, "a word") if self.training else found

    with pytest.raises(SettingError, match="gives a tuple whose item 2 is of type str"):
        flow(Helped(3, 2)).dry_run(*samples((3,)), 2)
