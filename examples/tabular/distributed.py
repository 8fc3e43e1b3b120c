"""A network of a table, and which of its columns count (Gedeon 1997, as H2O has it).

A column's importance is how much of the output goes through the weights that lead from it.
plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


def importance(network):
    """The share of each input, in sum 1, by the magnitudes of the weights between it and the outputs."""
    weights = [layer.weight.detach().abs() for layer in network if isinstance(layer, nn.Linear)]
    shares = torch.eye(weights[0].shape[1], dtype=weights[0].dtype)
    for weight in weights:
        shares = weight / weight.sum(1, keepdim=True) @ shares
    return shares.mean(0)


worker = volary.init()
torch.manual_seed(1)
table = torch.randn(820, 6)
values = (2 * table[:, 1] - table[:, 4] * table[:, 4].abs()).unsqueeze(1)  # four columns do not count
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-3)
worker.distribute(model, optimizer)
loader = DataLoader(TensorDataset(table, values), batch_size=41, shuffle=True)
for epoch in range(16):
    for inputs, targets in worker.feed(loader):
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
shares = importance(model)
print("importance of columns:", ", ".join(f"{share:.2f}" for share in shares.tolist()))
