"""Word vectors: skip-grams with negative sampling (Mikolov et al. 2013).

A made-up language has words of four kinds; those of a kind stand in the same places. Words that are drawn to be told
from real neighbours come with the data.
plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import logsigmoid, normalize
from torch.utils.data import DataLoader, TensorDataset

KINDS, WORDS, NEGATIVE = 4, 6, 5


class Vectors(nn.Module):
    """Two vectors for each word: as itself, and as a neighbour."""

    def __init__(self, words, width):
        super().__init__()
        self.words, self.neighbours = nn.Embedding(words, width), nn.Embedding(words, width)
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.zeros_(self.neighbours.weight)

    def forward(self, words, neighbours):
        """Scores (samples, n) of n neighbours of each word."""
        return (self.neighbours(neighbours) @ self.words(words).unsqueeze(2)).squeeze(2)


worker = volary.init()
torch.manual_seed(1)
kinds = torch.arange(2001) % KINDS
text = kinds * WORDS + torch.randint(WORDS, (2001,))
words, after = text[:-1], text[1:]
drawn = torch.randint(KINDS * WORDS, (2000, NEGATIVE))
model = Vectors(KINDS * WORDS, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
worker.distribute(model, optimizer)
loader = DataLoader(TensorDataset(words, after.unsqueeze(1), drawn), batch_size=50, shuffle=True)
for epoch in range(4):
    for word, real, false in worker.feed(loader):
        optimizer.zero_grad()
        loss = -(logsigmoid(model(word, real)).sum(1) + logsigmoid(-model(word, false)).sum(1)).mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
vectors = normalize(model.words.weight.detach())
nearest = (vectors @ vectors.T).fill_diagonal_(-1).argmax(1)
alike = (nearest // WORDS == torch.arange(KINDS * WORDS) // WORDS).to(vectors.dtype).mean().item()
print(f"nearest word of the same kind: {alike:.3f}")
