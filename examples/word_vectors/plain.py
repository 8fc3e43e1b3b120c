"""Word vectors: skip-grams with negative sampling (Mikolov et al. 2013).

A made-up language has words of four kinds; those of a kind stand in the same places. Words that are drawn to be told
from real neighbours come with the data. With a text file as its argument the language is that of its 1,000 most
frequent words, and what counts is how often a neighbour that was not learnt is told from a drawn word.
plain.py and distributed.py differ in 4 lines.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import torch
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


def neighbours(file):
    """The most frequent words of a text, and pairs of their numbers that are one or two words apart."""
    text = re.findall("[a-z']+", Path(file).read_text(encoding="utf-8").lower())
    frequent = [word for word, _ in Counter(text).most_common(1000)]
    numbers = {word: number for number, word in enumerate(frequent)}
    places = torch.tensor([numbers.get(word, -1) for word in text])
    near = torch.cat([torch.stack([places[:-apart], places[apart:]], 1) for apart in (1, 2)])
    near = near[(near >= 0).all(1)]
    return frequent, torch.cat([near, near.flip(1)])[torch.randperm(2 * len(near))]


torch.manual_seed(1)
if sys.argv[1:]:
    frequent, pairs = neighbours(sys.argv[1])
    drawn = pairs[torch.randint(len(pairs), (len(pairs), NEGATIVE)), 1]  # as often as they are in the text
    size, width, passes, batch, unseen = len(frequent), 32, 1, 500, 10_000
else:
    kinds = torch.arange(2001) % KINDS
    text = kinds * WORDS + torch.randint(WORDS, (2001,))
    pairs = torch.stack([text[:-1], text[1:]], 1)
    drawn = torch.randint(KINDS * WORDS, (2000, NEGATIVE))
    size, width, passes, batch, unseen = KINDS * WORDS, 8, 4, 50, 0
model = Vectors(size, width)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
learnt = TensorDataset(pairs[unseen:, 0], pairs[unseen:, 1:], drawn[unseen:])
loader = DataLoader(learnt, batch_size=batch, shuffle=True)
for epoch in range(passes):
    for word, real, false in loader:
        optimizer.zero_grad()
        loss = -(logsigmoid(model(word, real)).sum(1) + logsigmoid(-model(word, false)).sum(1)).mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
vectors = normalize(model.words.weight.detach())
nearest = (vectors @ vectors.T).fill_diagonal_(-1).argmax(1)
if unseen:
    words, real, false = pairs[:unseen, 0], pairs[:unseen, 1:], drawn[:unseen, :1]
    told = (model(words, real) > model(words, false)).to(vectors.dtype).mean().item()
    print(f"neighbours that are told from drawn words: {told:.3f}")
    print("nearest:", ", ".join(f"{frequent[word]} {frequent[nearest[word]]}" for word in range(40, 200, 10)))
else:
    alike = (nearest // WORDS == torch.arange(KINDS * WORDS) // WORDS).to(vectors.dtype).mean().item()
    print(f"nearest word of the same kind: {alike:.3f}")
