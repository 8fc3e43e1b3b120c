"""Policy gradients (REINFORCE, Williams 1992) in an environment of one's own: a cart learns to stay in the middle.

An episode is a start and the chance of each of its moves, so that it can be played again.

plain.py and distributed.py differ in 5 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import logsigmoid
from torch.utils.data import DataLoader, TensorDataset

MOVES = 20


class Cart:
    """Carts on a line, as many as are played at once. Each is pushed left (0) or right (1) in each move."""

    def __init__(self, starts):
        self.place, self.speed = starts.clone(), torch.zeros_like(starts)

    def seen(self):
        return torch.stack([self.place, self.speed], dim=1)

    def push(self, right):
        """Returns the reward (carts,), the greater the nearer the middle."""
        self.speed = 0.9 * self.speed + 0.2 * (2 * right - 1)
        self.place = self.place + self.speed
        return -self.place.abs()


worker = volary.init()
torch.manual_seed(1)
episodes = TensorDataset(torch.rand(410) * 4 - 2, torch.rand(410, MOVES))
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
worker.distribute(model, optimizer)
loader = DataLoader(episodes, batch_size=20)
for epoch in range(5):
    for starts, chances in worker.feed(loader):
        cart, rewards, logs = Cart(starts), [], []
        for chance in chances.unbind(1):
            score = model(cart.seen()).squeeze(1)
            right = (chance < score.sigmoid()).to(score.dtype)
            logs.append(logsigmoid(torch.where(right > 0, score, -score)))
            rewards.append(cart.push(right))
        to_come = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        usual = worker.mean(to_come.mean(1))
        optimizer.zero_grad()
        loss = -(torch.stack(logs) * (to_come - usual[:, None])).mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {-rewards[-1].mean().item():.2f} from the middle after {MOVES} moves")
