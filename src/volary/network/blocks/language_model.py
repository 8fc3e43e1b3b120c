"""A recurrent language model: embedding, LSTM layers, the next token's scores."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import init

from volary.network.operations.carried_state import recur, state_of


class LanguageModel(nn.Module):
    """Tokens (batch, time), int64, to scores (batch, time, vocabulary).

    stateful: each sample starts from the state of the one before it; otherwise from a zero state.
    """

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        hidden: int,
        layers: int,
        *,
        dropout: float,
        tied: bool,
        stateful: bool,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.dropout = nn.Dropout(dropout)
        between = dropout if layers > 1 else 0.0  # with one layer there is no between, and torch warns
        self.lstm = nn.LSTM(embedding, hidden, layers, dropout=between, batch_first=True)
        self.state = state_of(self.lstm) if stateful else None
        self.decoder = nn.Linear(hidden, vocabulary)
        for parameter in self.parameters():
            init.uniform_(parameter, -0.05, 0.05)  # Zaremba et al. 2014, section 4.1, medium
        if tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the token that follows each position."""
        hidden = recur(self.lstm, self.dropout(self.embedding(tokens)), self.state)
        scores: Tensor = self.decoder(self.dropout(hidden))
        return scores
