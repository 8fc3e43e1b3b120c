"""Fine-tuning: the head learns first, then all of the network.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

worker = volary.init()
torch.manual_seed(1)
inputs = torch.randn(410, 16)
labels = (inputs[:, :3].sum(1) > 0).long() + (inputs[:, 3:6].sum(1) > 0).long()
body, head = nn.Sequential(nn.Linear(16, 32), nn.Tanh()), nn.Linear(32, 3)
model = nn.Sequential(body, head)
body.requires_grad_(False)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
worker.distribute(model, optimizer)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=20)
for epoch in range(4):
    if epoch == 2:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": body.parameters(), "lr": 0.05})
    for points, classes in worker.feed(loader):
        optimizer.zero_grad()
        loss = cross_entropy(model(points), classes)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f} of the last batch")
