"""Image classification with a full command line: validation after each epoch, a checkpoint, and resuming from it.

plain.py and distributed.py differ in 4 lines.
"""

import argparse
import os
from pathlib import Path

import torch
import volary
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=50)
parser.add_argument("--rate", type=float, default=0.05)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--save", metavar="FILE", help="write a checkpoint there after each epoch")
parser.add_argument("--resume", metavar="FILE", help="begin with this checkpoint")
options = parser.parse_args()


def pictures(count):
    """Noisy pictures (1, 8, 8) of ten shapes, made up so that the example needs nothing else."""
    shapes = torch.rand(10, 1, 8, 8)
    labels = torch.randint(10, (count,))
    return TensorDataset(shapes[labels] + 0.3 * torch.randn(count, 1, 8, 8), labels)


def evaluate():
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in held_out)
    model.train()
    return right / len(validation)


def save(**state):
    """Whole or not at all, even if several processes write the same."""
    unfinished = Path(f"{options.save}.{os.getpid()}")
    torch.save(state, unfinished)
    unfinished.replace(options.save)


worker = volary.init()
torch.manual_seed(options.seed)
order = torch.Generator().manual_seed(options.seed)
training, validation = random_split(pictures(1210), [1010, 200])
loader = DataLoader(training, options.batch_size, shuffle=True, generator=order)
held_out = DataLoader(validation, batch_size=100)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10))
optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
worker.distribute(model, optimizer)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
first = 0
if options.resume:
    saved = torch.load(options.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    order.set_state(saved["order"])
    first = saved["epoch"]
for epoch in range(first, options.epochs):
    for images, labels in worker.feed(loader):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    schedule.step()
    print(f"epoch {epoch}: loss {loss.item():.4f} of the last batch, {evaluate():.1%} right of the pictures held out")
    if options.save:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        save(**states, order=order.get_state(), epoch=epoch + 1)
