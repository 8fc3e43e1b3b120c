"""A variational autoencoder (Kingma & Welling 2014), whose loss is a sum over the batch.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


class Vae(nn.Module):
    """Points of 16 values through a Gaussian of 2."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 16))

    def forward(self, inputs, noise):
        mean, log_variance = self.encoder(inputs).chunk(2, dim=1)
        return self.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance


worker = volary.init()
torch.manual_seed(1)
hidden = torch.randn(410, 2)
points = (hidden @ torch.randn(2, 16)).tanh()
model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
worker.distribute(model, optimizer, loss="sum")
loader = DataLoader(TensorDataset(points, torch.randn(410, 2)), batch_size=20)
for epoch in range(4):
    for inputs, noise in worker.feed(loader):
        optimizer.zero_grad()
        output, mean, log_variance = model(inputs, noise)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        loss = mse_loss(output, inputs, reduction="sum") + 0.1 * divergence
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item() / len(inputs):.4f} a sample of the last batch")
