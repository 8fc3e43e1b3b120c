"""A denoising autoencoder (Vincent et al. 2008) whose code is sparse (Ng 2011): few units of it are active.

Which values of a point are blanked out comes with the data. With a folder of MNIST's files as its argument it learns
from 10,000 of their pictures, and restores others.
plain.py and distributed.py differ in 4 lines.
"""

import gzip
import sys

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


def pictures(folder, part, count):
    """The first pictures of MNIST's training or test part, from 0 to 1."""
    with gzip.open(f"{folder}/{part}-images-idx3-ubyte.gz") as file:
        pixels = torch.frombuffer(bytearray(file.read(16 + 784 * count)[16:]), dtype=torch.uint8)
    return pixels.view(count, 784).to(torch.get_default_dtype()) / 255


torch.manual_seed(1)
if sys.argv[1:]:
    points, unseen = pictures(sys.argv[1], "train", 10_000), pictures(sys.argv[1], "t10k", 2_000)
    code, rate = 144, 0.001
else:
    points = unseen = (torch.rand(410, 3) @ torch.randn(3, 20)).sigmoid()
    code, rate = 24, 0.01
kept, blanked = ((torch.rand(values.shape) > 0.2).to(values.dtype) for values in (points, unseen))
width = points.shape[1]
model = nn.Sequential(nn.Linear(width, code), nn.Sigmoid(), nn.Linear(code, width))
optimizer = torch.optim.Adam(model.parameters(), lr=rate)
loader = DataLoader(TensorDataset(points, kept), batch_size=20)
for epoch in range(8):
    for clean, mask in loader:
        optimizer.zero_grad()
        code = model[:2](clean * mask)
        loss = mse_loss(model[2](code), clean) + 0.002 * code.mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
error, blank = (mse_loss(found, unseen).item() for found in (model(unseen * blanked), unseen * blanked))
print(f"error {error:.4f}, of what was blanked out {blank:.4f}; mean of the code {model[:2](unseen).mean().item():.2f}")
