"""A deep belief network (Hinton et al. 2006): restricted Boltzmann machines, one upon the other, then a classifier.

Each machine learns by contrastive divergence, as the difference of two free energies. The noise of Gibbs sampling comes
with the data, so that it does not depend on which process draws it.
plain.py and distributed.py differ in 5 lines.
"""

import torch
import volary
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
        """What visible units become after one step of Gibbs sampling."""
        hidden = (self(seen) > noise[:, : len(self.hidden)]).to(seen.dtype)
        return (hidden @ self.weight.T + self.visible).sigmoid()


worker = volary.init()
torch.manual_seed(1)
lines = (torch.arange(30) // 2 % 16 + 1).unsqueeze(1) >> torch.arange(4) & 1  # bars across, or down, of 4 x 4 pixels
across = torch.arange(30) % 2
patterns = torch.where(across.view(-1, 1, 1) == 1, lines.unsqueeze(2), lines.unsqueeze(1)).expand(30, 4, 4)
chosen = torch.arange(30)[(lines.sum(1) > 0) & (lines.sum(1) < 4)].repeat(12)  # all or none are neither
pictures, classes = patterns[chosen].reshape(-1, 16).to(torch.get_default_dtype()), across[chosen]
machines = [Machine(16, 24), Machine(24, 16)]
network = nn.Sequential(*machines, nn.Linear(16, 2))
rules = [torch.optim.SGD(machine.parameters(), lr=0.2, momentum=0.5) for machine in machines]
fine = torch.optim.Adam(network.parameters(), lr=0.02)
worker.distribute(network, [fine, *rules])
loader = DataLoader(TensorDataset(pictures, classes, torch.rand(len(pictures), 24)), batch_size=21, shuffle=True)
for depth, (machine, rule) in enumerate(zip(machines, rules, strict=True)):
    for _ in range(8):
        for seen, _, noise in worker.feed(loader):
            with torch.no_grad():
                below = network[:depth](seen)
                dreamt = machine.dreamt(below, noise)
            rule.zero_grad()
            (machine.energy(below) - machine.energy(dreamt)).mean().backward()
            rule.step()
    print(f"machine {depth}: error of what it dreams {(dreamt - below).square().mean().item():.4f}")
for _ in range(8):
    for seen, targets, _ in worker.feed(loader):
        fine.zero_grad()
        cross_entropy(network(seen), targets).backward()
        fine.step()
accuracy = (network(pictures).argmax(1) == classes).to(torch.get_default_dtype()).mean().item()
print(f"accuracy {accuracy:.3f}")
