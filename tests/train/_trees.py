"""Trees as samples, and a network whose layers run as a sample's tree says: recursion, conditions, loops."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

WORDS, WIDTH, CLASSES, LONGEST = 7, 6, 3, 6
END = -1


class Trees(Dataset):
    """Words with a split for each inner node of a tree over them: how many of its words are in its left branch.

    A sample is (words..., END...), then (splits in the order in which the nodes are visited..., END...).
    """

    def __init__(self, split: str, samples: int = 41) -> None:
        draw = torch.Generator().manual_seed(1 if split == "train" else 2)
        self.samples = [self._drawn(draw) for _ in range(samples)]

    def _drawn(self, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        length = int(torch.randint(1, LONGEST + 1, (), generator=draw))
        words, splits, waiting = torch.randint(WORDS, (length,), generator=draw).tolist(), list[int](), [length]
        while waiting:
            if (span := waiting.pop()) > 1:
                left = int(torch.randint(1, span, (), generator=draw))
                splits.append(left)
                waiting += [span - left, left]
        filled = [one + [END] * (LONGEST - len(one)) for one in (words, splits)]
        return torch.tensor([*filled[0], *filled[1]]), torch.tensor(sum(words) % CLASSES)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.samples[index]


class TreeNet(nn.Module):
    """A recursive network (Socher et al. 2011), in 64 bits; words of even and odd number have layers of their own."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.even, self.odd = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.join = nn.Linear(2 * WIDTH, WIDTH)
        self.answer = nn.Linear(WIDTH, classes)
        self.double()

    def forward(self, trees: Tensor) -> Tensor:
        """(batch, 2 * LONGEST) to (batch, classes)."""
        found = []
        for tree in trees:
            words = [word for word in tree[:LONGEST].tolist() if word != END]
            found.append(self._node(words, iter(tree[LONGEST:].tolist())))
        return self.answer(torch.stack(found))

    def _node(self, words: list[int], splits: object) -> Tensor:
        if len(words) == 1:
            leaf = self.words(torch.tensor(words[0]))
            return (self.odd if words[0] % 2 else self.even)(leaf).tanh()
        left = next(splits)  # type: ignore[call-overload]
        return self.join(torch.cat([self._node(words[:left], splits), self._node(words[left:], splits)])).tanh()
