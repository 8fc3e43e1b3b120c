"""An ordinary PyTorch script on one device; examples/own_loop.py is the same script on two workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5


def digits() -> TensorDataset:
    """Two thousand noisy pictures of ten shapes, made up so that the example needs nothing else."""
    generator = torch.Generator().manual_seed(1)
    shapes = torch.rand(10, 64, generator=generator)
    labels = torch.randint(10, (2000,), generator=generator)
    return TensorDataset(shapes[labels] + 0.3 * torch.randn(2000, 64, generator=generator), labels)


def train() -> float:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(digits(), batch_size=50, shuffle=True)
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print(f"loss of the last batch: {train():.4f}")
