"""A locally connected autoencoder, cut over workers (Coates et al. 2013): more weights than one has room for.

    volary launch strategy.workers=4 examples/cut_autoencoder.py

Each window of an image has weights of its own. A worker has those of its part of the image, their gradients and what
Adam keeps of them; all workers see the same images, and only what windows reach beyond a part travels.
"""

import torch
import volary
from torch.nn.functional import pixel_unshuffle
from volary.network.arrays import DistributedArray, LocallyConnected

SIDE, BLOCK, MAPS = 48, 4, 12  # of an image; of the blocks that it is restored in; values that the code has of a place
BUDGET_BYTES = 3_000_000  # for weights, their gradients, and two moments of each

worker = volary.init()
channel = worker.channel()
grid = (worker.world_size, 1)  # the image's height is cut
encode = LocallyConnected(channel, (1, SIDE, SIDE), MAPS, window=8, stride=BLOCK, padding=2, grid=grid, seed=1)
decode = LocallyConnected(channel, (MAPS, *encode.places), BLOCK**2, window=3, padding=1, grid=grid, seed=2)
weights = [*encode.parameters(), *decode.parameters()]
optimizer = torch.optim.Adam(weights, lr=0.003)

own_bytes = 4 * sum(4 * one.numel() for one in weights)
total_bytes = worker.sum(own_bytes)
if own_bytes > BUDGET_BYTES:
    raise SystemExit(f"{own_bytes / 1e6:.1f} MB are more than {BUDGET_BYTES / 1e6:.1f} MB; accepted: more workers")

generator = torch.Generator().manual_seed(0)  # the same images on all workers
waves = torch.rand(3, 240, 1, 1, generator=generator) * 6
down, across = torch.linspace(0, 1, SIDE).view(1, -1, 1), torch.linspace(0, 1, SIDE).view(1, 1, -1)
images = (waves[0] * down + waves[1] * across + waves[2]).sin().unsqueeze(1)  # (240, 1, height, width)
for epoch in range(4):
    for batch in images.split(20):
        optimizer.zero_grad()
        code = encode(DistributedArray.of(channel, batch)).map(torch.tanh)
        restored = decode(code)  # of each place the block of pixels that belongs there
        wanted = DistributedArray.of(channel, pixel_unshuffle(batch, BLOCK), (1, 1, *grid))
        error = restored.map(lambda one, other: (one - other) ** 2, wanted)
        loss = error.values.sum() / batch.numel()  # this part's share of the mean; the gradient is of all parts' sum
        loss.backward()
        optimizer.step()
    mean = error.reduce(torch.sum).item() / batch.numel()
    worker.record(loss=mean)
    if worker.is_first:
        print(f"epoch {epoch}: error {mean:.4f}", flush=True)
if worker.is_first:
    print(f"{own_bytes / 1e6:.1f} of {total_bytes / 1e6:.1f} MB on this worker")
