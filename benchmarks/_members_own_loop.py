"""A loop of one's own for random schedules of members: it trains, saves what it has come to, and returns it."""

from __future__ import annotations

import sys
import time
from ast import literal_eval
from typing import Any

import torch
from torch.utils.data import TensorDataset

import volary
from volary.errors import VolaryError
from volary.train.own.worker import Worker

PACE_S = 0.01  # of a step, so that something can happen beside it


def train(worker: Worker, epochs: int, samples: int) -> dict[str, Any]:
    """Train a small network; its parameters by name."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    model, optimizer = worker.distribute(model, optimizer)
    worker.restore(model=model, optimizer=optimizer, schedule=schedule)
    data, loss = TensorDataset(torch.randn(samples, 16), torch.randint(4, (samples,))), torch.zeros(())
    for _ in worker.epochs(epochs):
        for inputs, targets in worker.feed(data, batch_size=32):
            time.sleep(PACE_S)
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        worker.record(loss=worker.mean(loss.detach()))
    worker.save(model=model, optimizer=optimizer, schedule=schedule)
    return {name: one.detach().clone() for name, one in model.named_parameters()}


if __name__ == "__main__":
    of, strategy = literal_eval(sys.argv[1]), literal_eval(sys.argv[2])
    bounds = {"recover": "memory", "suspect_after_s": 3, "give_up_after_s": 6}
    try:
        volary.launch(train, name="it", workers=3, strategy=bounds | strategy, kwargs=of)
    except VolaryError as error:
        print(error.report, file=sys.stderr)
        sys.exit(error.exit_code)
