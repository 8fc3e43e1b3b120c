"""A small transformer that continues sequences (after Radford et al. 2018), with accumulation and gradient clipping.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

LENGTH, WORDS, WIDTH, PASSES = 8, 13, 16, 2


class Gpt(nn.Module):
    """One block; each place sees those before it."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.last = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.words(words) + self.places(torch.arange(LENGTH))
        return self.last(self.block(hidden, src_mask=mask, is_causal=True))


worker = volary.init()
torch.manual_seed(1)
first, step = torch.randint(WORDS, (320, 1)), torch.randint(1, 4, (320, 1))
texts = (first + step * torch.arange(LENGTH + 1)) % WORDS
model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
worker.distribute(model, optimizer, passes=PASSES)
loader = DataLoader(TensorDataset(texts), batch_size=16)
for epoch in range(3):
    for number, (text,) in enumerate(worker.feed(loader), 1):
        loss = cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        (loss / PASSES).backward()
        if number % PASSES == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.4f} of the last batch")
