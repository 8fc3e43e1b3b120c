"""Super-resolution by sub-pixel convolution (Shi et al. 2016): pictures become twice as wide and as high.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import avg_pool2d, mse_loss
from torch.utils.data import DataLoader, TensorDataset

worker = volary.init()
torch.manual_seed(1)
places = torch.linspace(0, 3, 16)
waves = torch.rand(205, 2, 1, 1) * 3
pictures = torch.sin(waves[:, :1] * places[:, None] + waves[:, 1:] * places)
model = nn.Sequential(
    *(nn.Conv2d(1, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 8, 3, padding=1), nn.Tanh()),
    *(nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2)),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
worker.distribute(model, optimizer)
loader = DataLoader(TensorDataset(avg_pool2d(pictures, 2), pictures), batch_size=20)
for epoch in range(4):
    for small, large in worker.feed(loader):
        optimizer.zero_grad()
        loss = mse_loss(model(small), large)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {-10 * loss.log10().item():.1f} dB, the signal-to-noise ratio of the last batch")
