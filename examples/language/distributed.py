"""A word language model with truncated back-propagation: each window of a text goes on with the last one's memory.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch import nn
from torch.nn.functional import cross_entropy

WORDS, WINDOW, COLUMNS = 12, 6, 16


class Language(nn.Module):
    """The next word of each, and the memory after the last."""

    def __init__(self):
        super().__init__()
        self.words, self.next = nn.Embedding(WORDS, 16), nn.Linear(24, WORDS)
        self.memory = nn.LSTM(16, 24, batch_first=True)

    def forward(self, words, memory):
        hidden, memory = self.memory(self.words(words), memory)
        return self.next(hidden), memory


worker = volary.init()
torch.manual_seed(1)
text = torch.randint(1, 4, (COLUMNS, 241)).cumsum(1) % WORDS
windows = [(text[:, at : at + WINDOW], text[:, at + 1 : at + WINDOW + 1]) for at in range(0, 240, WINDOW)]
model = Language()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
worker.distribute(model, optimizer)
for epoch in range(3):
    memory = None
    for words, following in worker.feed(windows):
        optimizer.zero_grad()
        scores, memory = model(words, memory)
        memory = [state.detach() for state in memory]
        loss = cross_entropy(scores.flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
    print(f"epoch {epoch}: perplexity {loss.exp().item():.2f} of the last window")
