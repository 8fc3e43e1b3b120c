"""Fine-tuning a transformer of Hugging Face's, with batches that are dictionaries, warm-up and parameter groups.

Its values are random here; `from_pretrained` would load some.

plain.py and distributed.py differ in 4 lines.
"""

import torch
import volary
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

EPOCHS, WORDS, LENGTH = 3, 40, 12
CONFIG = BertConfig(
    vocab_size=WORDS,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=LENGTH,
    num_labels=2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


class Sentences(Dataset):
    """Sentences of 4 to 12 words, padded with word 0; the label says whether word 1 or 2 is among them."""

    def __init__(self, count):
        lengths = torch.randint(4, LENGTH + 1, (count, 1))
        self.masks = (torch.arange(LENGTH) < lengths).long()
        self.words = torch.randint(3, WORDS, (count, LENGTH)) * self.masks
        self.labels = torch.randint(2, (count,))
        self.words[:, 1] = 1 + self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "attention_mask": self.masks[index], "labels": self.labels[index]}


worker = volary.init()
torch.manual_seed(1)
loader = DataLoader(Sentences(170), batch_size=16)
model = BertForSequenceClassification(CONFIG)
decaying = [parameter for parameter in model.parameters() if parameter.dim() > 1]
others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
groups = [{"params": decaying, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=0.002)
worker.distribute(model, optimizer)
schedule = get_linear_schedule_with_warmup(optimizer, 5, EPOCHS * len(loader))
for epoch in range(EPOCHS):
    for batch in worker.feed(loader):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    print(f"epoch {epoch}: loss {loss.item():.4f} of the last batch")
