"""A deep belief network (Hinton et al. 2006): restricted Boltzmann machines, one upon the other, then a classifier.

Each machine learns by contrastive divergence, as the difference of two free energies. The noise of Gibbs sampling comes
with the data, so that it does not depend on which process draws it. With a folder of MNIST's files as its argument it
learns from 10,000 of their pictures, and says what all of the test part show.
plain.py and distributed.py differ in 5 lines.
"""

import gzip
import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy, softplus
from torch.utils.data import DataLoader, TensorDataset


class Machine(nn.Module):
    """Visible and hidden units that are 0 or 1."""

    def __init__(self, visible, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(visible, hidden) * 0.1)
        self.visible, self.hidden = nn.Parameter(torch.zeros(visible)), nn.Parameter(torch.zeros(hidden))

    def forward(self, seen):
        """The chances of hidden units."""
        return (seen @ self.weight + self.hidden).sigmoid()

    def energy(self, seen):
        return -(seen @ self.visible) - softplus(seen @ self.weight + self.hidden).sum(1)

    def dreamt(self, seen, noise):
        """The visible units after one step of Gibbs sampling."""
        hidden = (self(seen) > noise[:, : len(self.hidden)]).to(seen.dtype)
        return (hidden @ self.weight.T + self.visible).sigmoid()


def bars():
    """Pictures of 4 x 4 pixels with bars across or down, and which."""
    lines = (torch.arange(30) // 2 % 16 + 1).unsqueeze(1) >> torch.arange(4) & 1
    across = torch.arange(30) % 2
    patterns = torch.where(across.view(-1, 1, 1) == 1, lines.unsqueeze(2), lines.unsqueeze(1)).expand(30, 4, 4)
    chosen = torch.arange(30)[(lines.sum(1) > 0) & (lines.sum(1) < 4)].repeat(12)  # all or none are neither
    return patterns[chosen].reshape(-1, 16).to(torch.get_default_dtype()), across[chosen]


def digits(folder, part):
    """The first 10,000 pictures of MNIST's training or test part, from 0 to 1, and which digits they are."""

    def read(name, head, count):
        with gzip.open(f"{folder}/{part}-{name}-ubyte.gz") as file:
            return torch.frombuffer(bytearray(file.read(head + count)[head:]), dtype=torch.uint8)

    pixels = read("images-idx3", 16, 784 * 10_000).view(-1, 784)
    return pixels.to(torch.get_default_dtype()) / 255, read("labels-idx1", 8, 10_000).long()


torch.manual_seed(1)
if sys.argv[1:]:
    (pictures, classes), (unseen, answers) = (digits(sys.argv[1], part) for part in ("train", "t10k"))
    sizes, rate, passes = (784, 200, 100, 10), 0.05, 4
else:
    pictures, classes = unseen, answers = bars()
    sizes, rate, passes = (16, 24, 16, 2), 0.2, 8
machines = [Machine(*sizes[:2]), Machine(*sizes[1:3])]
network = nn.Sequential(*machines, nn.Linear(*sizes[2:]))
rules = [torch.optim.SGD(machine.parameters(), lr=rate, momentum=0.5) for machine in machines]
fine = torch.optim.Adam(network.parameters(), lr=rate / 10)
noise = torch.rand(len(pictures), sizes[1])
loader = DataLoader(TensorDataset(pictures, classes, noise), batch_size=21, shuffle=True)
for depth, (machine, rule) in enumerate(zip(machines, rules, strict=True)):
    for _ in range(passes):
        for seen, _, drawn in loader:
            with torch.no_grad():
                below = network[:depth](seen)
                dreamt = machine.dreamt(below, drawn)
            rule.zero_grad()
            (machine.energy(below) - machine.energy(dreamt)).mean().backward()
            rule.step()
    print(f"machine {depth}: error of what it dreams {(dreamt - below).square().mean().item():.4f}")
for _ in range(passes):
    for seen, targets, _ in loader:
        fine.zero_grad()
        cross_entropy(network(seen), targets).backward()
        fine.step()
accuracy = (network(unseen).argmax(1) == answers).to(torch.get_default_dtype()).mean().item()
print(f"accuracy {accuracy:.3f}")
