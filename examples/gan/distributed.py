"""A generative adversarial network (Goodfellow et al. 2014): two models and two optimisers that learn in turn.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, TensorDataset

worker = volary.init()
torch.manual_seed(1)
angles = torch.rand(410) * 6.28
circle = torch.stack([angles.cos(), angles.sin()], dim=1)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=0.002)
of_judge = torch.optim.Adam(judge.parameters(), lr=0.002)
worker.distribute([generator, judge], [of_generator, of_judge])
loader = DataLoader(TensorDataset(circle, torch.randn(410, 4)), batch_size=20)
for epoch in range(4):
    for real, noise in worker.feed(loader):
        fake = generator(noise)
        of_judge.zero_grad()
        (softplus(-judge(real)) + softplus(judge(fake.detach()))).mean().backward()
        of_judge.step()
        of_generator.zero_grad()
        loss = softplus(-judge(fake)).mean()
        loss.backward()
        of_generator.step()
    print(f"epoch {epoch}: the generator's loss is {loss.item():.4f}")
