"""examples/plain_loop.py on two workers: `train` takes a worker, and the lines marked (1) to (3) changed."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import volary

EPOCHS = 5


def digits() -> TensorDataset:
    """Two thousand noisy pictures of ten shapes, made up so that the example needs nothing else."""
    generator = torch.Generator().manual_seed(1)
    shapes = torch.rand(10, 64, generator=generator)
    labels = torch.randint(10, (2000,), generator=generator)
    return TensorDataset(shapes[labels] + 0.3 * torch.randn(2000, 64, generator=generator), labels)


def train(worker: volary.Worker) -> float:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = worker.distribute(model, optimizer)  # (1) the replicas stay one model
    loader = worker.feed(digits(), batch_size=50)  # (2) each worker gets its share
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        worker.record(loss=loss.item())
    return loss.item()


if __name__ == "__main__":
    result = volary.launch(train, workers=2)  # (3) instead of train()
    print(f"loss of each worker's last share: {', '.join(f'{loss:.4f}' for loss in result.values)}")
    print(f"the run is stored in {result.directory.path}")
