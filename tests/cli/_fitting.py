"""Networks, losses and data for `volary check`: those that fit together, and those that training would refuse."""

NETS = """\
from torch import nn
class Net(nn.Module):
    def __init__(self, input_shape, classes, width=4):
        super().__init__()
        self.fc = nn.Linear(6, classes)
    def forward(self, x):
        return self.fc(x)
class Unmade(Net):
    def __init__(self, input_shape, classes):
        raise ValueError("no such width")
class Raising(Net):
    def forward(self, x):
        return super().forward(x) + [][0]
class Narrow(Net):
    def forward(self, x):
        return self.fc(x[:, :5])
class Mapping(Net):
    def forward(self, x):
        return {"scores": super().forward(x)}
class Pair(Net):
    def forward(self, x):
        return super().forward(x), {"hidden": x}
class Fixed(nn.Module):
    def forward(self, x):
        return x[:, :3]
class Detached(Net):
    def forward(self, x):
        return super().forward(x).detach()
class Aside(Net):
    def forward(self, x):
        return (x[:, :3] * 2).requires_grad_()
class Normed(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))
def formatted(width):
    raise TypeError(f"width is {width}")
def _hidden(width):
    pass
"""
LOSSES = """\
from torch.nn.functional import cross_entropy
def vector(output, target):
    return cross_entropy(output, target, reduction="none")
def number(output, target):
    return cross_entropy(output, target).item()
def detached(output, target):
    return cross_entropy(output, target).detach()
def raising(output, target):
    raise KeyError("margin")
class Unmade:
    def __init__(self):
        raise RuntimeError("no table")
def rule(parameters, lr):
    raise TypeError("no such rule")
"""
DATA = """\
import torch
class Good(torch.utils.data.Dataset):
    classes = 3
    def __init__(self, split="train"):
        self.split = split
    def __len__(self):
        return 20
    def __getitem__(self, number):
        return torch.ones(6) * number, number % 3
class Torn(Good):
    def __getitem__(self, number):
        if number == 19:
            raise OSError("truncated")
        return super().__getitem__(number)
class Ragged(Good):
    def __getitem__(self, number):
        return torch.ones(6 + (number == 19)), 0
class Unnumbered(Good):
    classes = None
class Whole(Good):
    def __init__(self):
        pass
class Unmade(Good):
    def __init__(self, split):
        open("nowhere/at/all")
class Other(Good):
    def __getitem__(self, number):
        return torch.ones(6 if self.split == "train" else 7), 0
class Floats(Good):
    def __getitem__(self, number):
        return torch.ones(6), 0.5
class Unfit(Good):
    def __getitem__(self, number):
        return torch.ones(6), 3 * (number == (19 if self.split == "train" else 5))
class Unseen(Good):
    def __getitem__(self, number):
        return torch.ones(6), 0 if self.split == "train" else 7
class One(Good):
    def __len__(self):
        return 1
class Flow(torch.utils.data.IterableDataset):
    classes = 3
    def __init__(self, split="train"):
        pass
    def __iter__(self):
        return ((torch.ones(6), 1) for _ in range(20))
"""
FITTING = "network: nets.py:Net\ndata: {source: data.py:Good, batch_size: 8}\ntrain: {steps: 4}\n"


def warnings_in(said):
    return [line.removeprefix("# warning: ") for line in said.err.splitlines() if line.startswith("# warning: ")]
