"""Programs of a user's own, as text: they call `volary.init()` at module level."""

PROGRAM = """\
import argparse
import sys
import torch
import volary

words = argparse.ArgumentParser()
words.add_argument("--epochs", type=int, default=2)
given = words.parse_args()
worker = volary.init()
torch.manual_seed(1)
model = torch.nn.Linear(4, 2).double()
model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
torch.manual_seed(2)
data = torch.utils.data.TensorDataset(torch.randn(30, 4).double(), torch.randint(2, (30,)))
for epoch in range(given.epochs):
    for inputs, labels in worker.feed(data, batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
line = f"{__name__} {worker.rank} of {worker.world_size}: {model.weight.sum().item():.10f}"
print(line + "\\n", end="")  # in one piece: ranks print at once
"""
