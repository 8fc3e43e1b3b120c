"""A denoising autoencoder (Vincent et al. 2008) whose code is sparse (Ng 2011): few units of it are active.

Which values of a point are blanked out comes with the data.
plain.py and distributed.py differ in 4 lines.
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
hidden = torch.rand(410, 3)
points = (hidden @ torch.randn(3, 20)).sigmoid()
kept = (torch.rand(410, 20) > 0.2).to(points.dtype)
model = nn.Sequential(nn.Linear(20, 24), nn.Sigmoid(), nn.Linear(24, 20))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(points, kept), batch_size=20)
for epoch in range(8):
    for clean, mask in loader:
        optimizer.zero_grad()
        code = model[:2](clean * mask)
        loss = mse_loss(model[2](code), clean) + 0.002 * code.mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
restored = model(points * kept)
error, blank = mse_loss(restored, points).item(), mse_loss(points * kept, points).item()
print(f"error {error:.4f}, of what was blanked out {blank:.4f}")
