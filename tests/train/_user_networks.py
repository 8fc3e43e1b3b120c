"""Networks of a user's own, as sessions of these tests name them: small, and each with something of its own."""

from __future__ import annotations

import os
import warnings

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from volary.network.zoo import ROOM as ZOO
from volary.network.zoo.lenet import LeNet

RANK = os.environ.get("VOLARY_RANK", "0")
FEATURES, CLASSES = (6, 4)


class Scores(nn.Module):
    """One of two layers, which are large enough for codecs in 32 bits."""

    def __init__(self, bits: int = 64) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(FEATURES, 256) for _ in range(2))
        self.to(torch.float64 if bits == 64 else torch.float32)

    def forward(self, inputs: Tensor) -> Tensor:
        head = self.heads[int(inputs[0, 0, 0])]
        return head(inputs.to(head.weight.dtype))


class Series(nn.Module):
    """A value for each step."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs).squeeze(-1)


class Tied(nn.Module):
    """One matrix twice, a buffer that is no part of the weights, and one that is a small part of something large."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(FEATURES, FEATURES, bias=False)
        self.back = nn.Linear(FEATURES, FEATURES, bias=False)
        self.back.weight = self.into.weight
        self.out = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mask", torch.ones(FEATURES, dtype=torch.bool), persistent=False)
        self.register_buffer("seen", torch.zeros(1_000_000)[:1])
        self.register_buffer("same", self.seen.data)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.seen.add_(len(inputs))
            self.mask[0] = False
        return self.out(self.back(torch.tanh(self.into(inputs))) * self.mask)


class Tied64(Tied):
    """The same in 64 bits, with buffers that training does not touch."""

    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.back(torch.tanh(self.into(inputs.double()))))


class LeNet64(nn.Module):
    """LeNet in 64 bits, for the digits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = LeNet().build((1, 28, 28), 10).double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.double())


class In64(nn.Module):
    """Values in 64 bits; tokens as they are."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.double() if inputs.is_floating_point() else inputs


class Zoo64(nn.Module):
    """A network of the zoo in 64 bits. of: its own settings."""

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, zoo: str, of: dict[str, float] | None = None
    ) -> None:
        super().__init__()
        self.layers = ZOO.load(zoo)(**(of or {})).build(input_shape, classes).double()
        self.cast = In64()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(self.cast(inputs))


class AlexNetLike(nn.Module):
    """Convolutions, some in groups, and most parameters in two linear layers; in 64 bits, from 12 x 12 pixels."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(input_shape[0], 8, 5, stride=2), nn.ReLU(inplace=True), nn.LocalResponseNorm(5)),
            *(nn.Conv2d(8, 16, 3, padding=1, groups=2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()),
        )
        pixels = self.features(torch.zeros(1, *input_shape)).numel()
        hidden = nn.Sequential(
            nn.Linear(pixels, 512), nn.ReLU(inplace=True), nn.Linear(512, 512), nn.ReLU(inplace=True)
        )
        self.classifier = nn.Sequential(*hidden, nn.Linear(512, classes))
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.classifier(self.features(inputs.double()))


class Exact(nn.Module):
    """In 64 bits, so that only a wrong sum shows and no rounding; a part of it is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, CLASSES)
        )
        self.unused = nn.Linear(2, 2)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.double())


class Deep(nn.Module):
    """Three layers, of which some may be frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


class Normed64(nn.Module):
    """In 64 bits, with batch norms on two ways that meet, one of them without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.left = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=None))
        self.right = nn.Sequential(nn.Unflatten(1, (2, 2, 2)), nn.BatchNorm2d(2, affine=False), nn.Flatten())
        self.last = nn.Linear(8, CLASSES)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.first(inputs.double())
        return self.last((self.left(found) + self.right(found)).tanh().view(-1, 8))


class Dropping(nn.Module):
    """In 32 bits, with what a resume can lose: dropout, and batch norm's statistics."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, CLASSES)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.flatten(1))


class OfMyRank(Dropping):
    """Another shape on each rank."""

    def __init__(self) -> None:
        super().__init__(width=8 + int(RANK))


class Pictures(nn.Module):
    """Convolutions whose weights lie channels last, one of them turned around."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(2, 5, 2)
        self.two = nn.Linear(5 * 2, CLASSES)
        self.to(memory_format=torch.channels_last)
        self.two.weight = nn.Parameter(torch.randn(10, CLASSES).t())
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.two(self.one(inputs.double().view(-1, 2, 3, 1).expand(-1, -1, -1, 2)).flatten(1))


class Odd(nn.Module):
    """Everything that a network may do with its parameters: see the names of the attributes.

    Which of `sometimes` is used depends on the samples, so on the worker; `in_turn` changes from step to step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 6).double()
        self.shared = nn.Linear(6, 6).double()
        self.again = self.shared
        self.frozen = nn.Linear(6, 6).double().requires_grad_(requires_grad=False)
        self.unused = nn.Linear(6, 6).double()
        self.sometimes = nn.Linear(6, 6).double()
        self.in_turn = nn.ModuleList(nn.Linear(6, 6).double() for _ in range(3))
        self.small = nn.Parameter(torch.ones(6))  # 32 bits
        self.last = nn.Linear(6, CLASSES).double()
        self.steps = 0

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.double()
        hidden = self.again(torch.tanh(self.shared(torch.tanh(self.first(inputs))))) * self.small
        hidden = hidden + self.frozen(hidden)
        if bool((inputs[:, 0] > 1.2).any()):
            # a term of those samples alone, so that the sum over all workers is one device's
            hidden = hidden + self.sometimes(hidden) * (inputs[:, :1] > 1.2)
        if self.training:
            hidden = self.in_turn[self.steps % 3](hidden)
            self.steps += 1
        return self.last(torch.tanh(hidden))


class Given(nn.Module):
    """Returns its parameter itself, as what reparametrises a weight does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 1.0, 64, dtype=torch.float64).view(8, 8))

    def forward(self) -> Tensor:
        return self.weight


class Borrowing(nn.Module):
    """Parameters that are used elsewhere than in their layer's forward, and layers that are computed anew."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, 8).double(), nn.Linear(8, 8).double()
        self.third, self.given, self.last = nn.Linear(8, 8).double(), Given(), nn.Linear(8, CLASSES).double()

    def forward(self, inputs: Tensor) -> Tensor:
        from torch.utils.checkpoint import checkpoint

        hidden = torch.tanh(self.first(inputs.double()))
        hidden = checkpoint(self._anew, hidden, use_reentrant=False)
        weight, twice = self.given(), self.second.weight  # read here, used after other layers
        hidden = torch.tanh(self.third(hidden))
        return self.last(torch.tanh(nn.functional.linear(hidden, weight @ twice)))

    def _anew(self, hidden: Tensor) -> Tensor:
        return torch.tanh(self.third(torch.tanh(self.second(hidden))))


class Wide(nn.Module):
    """Two large layers, of 1 MiB at a width of 256 in 64 bits, and how they are used: see the names of the methods.

    from_step: of the forward passes, when that use begins; before it is used plainly. on: the ranks that do it.
    """

    def __init__(
        self,
        width: int = 32,
        use: str = "plainly",
        from_step: int = 0,
        on: tuple[int, ...] = (0, 1, 2),
        bits: int = 64,
    ) -> None:
        super().__init__()
        self.into = nn.Linear(FEATURES, width)
        self.large = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, CLASSES)
        self.use, self.from_step, self.on, self.steps = use, from_step, on, 0
        self.kept = [self.into.weight, self.large.bias]
        if bits == 64:
            self.double()
        if use == "hooked":
            self.large.weight.register_hook(lambda gradient: gradient * 0.5)
            self.back.weight.register_hook(lambda gradient: gradient.mul_(0.5))

    def forward(self, inputs: Tensor) -> Tensor:
        from torch import distributed

        rank = distributed.get_rank() if distributed.is_initialized() else 0
        self.steps += self.training
        other = self.steps > self.from_step and rank in self.on
        hidden = torch.tanh(self.into(inputs.to(self.out.weight.dtype)))
        return self.out(torch.tanh(getattr(self, self.use if other else "plainly")(hidden)))

    def plainly(self, hidden: Tensor) -> Tensor:
        return self.back(torch.tanh(self.large(hidden)))

    hooked = plainly

    def twice(self, hidden: Tensor) -> Tensor:
        return self.plainly(torch.tanh(self.plainly(hidden)))

    def beside(self, hidden: Tensor) -> Tensor:
        return self.plainly(hidden) + linear(linear(hidden, self.large.weight), self.back.weight)

    def recomputed(self, hidden: Tensor) -> Tensor:
        return checkpoint(self.plainly, hidden, use_reentrant=False)

    def penalised(self, hidden: Tensor) -> Tensor:
        with torch.enable_grad():
            inputs = hidden.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.plainly(inputs).sum(), [inputs], create_graph=True)
        return self.plainly(hidden) + slope.square().sum(1, keepdim=True)

    def listed(self, hidden: Tensor) -> Tensor:
        return self.plainly(hidden) + self.kept[1].sum() + self.kept[0].sum()


class Recurrent(nn.Module):
    """An LSTM, which keeps references to its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(2, 5, num_layers=2, batch_first=True)
        self.out = nn.Linear(5, CLASSES)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.cell(inputs.double().view(-1, 3, 2))[0][:, -1])


class Attentive(nn.Module):
    """Attention, which reads its child's weight without calling the child."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(2, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, CLASSES)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.into(inputs.double().view(-1, 3, 2))
        return self.out(self.attention(hidden, hidden, hidden)[0].mean(1))


class Scripted(nn.Module):
    """A part of it is TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.layers = torch.jit.script(
                nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, CLASSES)).double()
            )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.double())


class DroppingBetween(nn.Module):
    """Dropout between two linear layers, and nothing else; in 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 9), nn.ReLU(), nn.Dropout(0.3), nn.Linear(9, CLASSES))
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.double())


class Decaying(DroppingBetween):
    """Its output depends on a weight, read beside the layer."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * self.layers[0].weight.square().sum()


class Keeping(DroppingBetween):
    """A network that keeps its first weight where no module knows of it, and reads it there."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = {self.layers[0].weight}

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers[1:](inputs.double() @ next(iter(self.kept)).t())
