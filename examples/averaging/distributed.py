"""An exponential moving average (EMA) of a network's parameters, which is what is evaluated in the end.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

worker = volary.init()
torch.manual_seed(1)
inputs = torch.rand(510, 1) * 6 - 3
outputs = inputs.sin() + 0.2 * torch.randn(510, 1)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
worker.distribute(model, optimizer)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
loader = DataLoader(TensorDataset(inputs, outputs), batch_size=20)
for epoch in range(4):
    for some, wanted in worker.feed(loader):
        optimizer.zero_grad()
        mse_loss(model(some), wanted).backward()
        optimizer.step()
        average.update_parameters(model)
    with torch.no_grad():
        errors = [mse_loss(one(inputs), inputs.sin()).item() for one in (model, average)]
    print(f"epoch {epoch}: error {errors[0]:.4f}, of the average {errors[1]:.4f}")
