"""A Siamese network (Bromley et al. 1993): two pictures through one network, and a contrastive loss of the distance.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import pairwise_distance
from torch.utils.data import DataLoader, Dataset

MARGIN = 1.0


class Pairs(Dataset):
    """Points of five kinds, each with one that is of the same kind (1) or of any (0)."""

    def __init__(self, count):
        self.kinds = torch.randint(5, (count,))
        self.points = torch.randn(5, 16)[self.kinds] + 0.3 * torch.randn(count, 16)
        alike = [(self.kinds == kind).nonzero().flatten() for kind in range(5)]
        self.others = [
            int(torch.randint(count, ())) if index % 2 else int(alike[kind][torch.randint(len(alike[kind]), ())])
            for index, kind in enumerate(self.kinds.tolist())
        ]

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        other = self.others[index]
        return self.points[index], self.points[other], (self.kinds[index] == self.kinds[other]).float()


worker = volary.init()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
worker.distribute(model, optimizer)
loader = DataLoader(Pairs(410), batch_size=20)
for epoch in range(4):
    for first, second, same in worker.feed(loader):
        optimizer.zero_grad()
        distance = pairwise_distance(model(first), model(second))
        loss = (same * distance**2 + (1 - same) * (MARGIN - distance).relu() ** 2).mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f} of the last batch")
