"""Names that Lightning, Keras and Hugging Face's Trainer have for our settings, where no spelling is near."""

from __future__ import annotations

from collections.abc import Iterable

SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "base_lr", "eta"), ("lr",)),
    **dict.fromkeys(("early_stopping", "early_stop", "stop_early", "early_stopping_patience"), ("patience",)),
    **dict.fromkeys(("lr_scheduler", "lr_scheduler_type", "lr_policy"), ("schedule",)),
    **dict.fromkeys(("max_epochs", "num_epochs", "num_train_epochs"), ("epochs",)),
    **dict.fromkeys(("max_steps", "max_iter", "iterations"), ("steps",)),
    **dict.fromkeys(("max_grad_norm", "gradient_clip_val", "clip_gradients", "clip_grad_norm"), ("clip_norm",)),
    **dict.fromkeys(("gradient_accumulation_steps", "accumulate_grad_batches", "iter_size"), ("accumulate",)),
    **dict.fromkeys(("gradient_checkpointing", "activation_checkpointing"), ("recompute",)),
    **dict.fromkeys(("mixed_precision", "amp"), ("precision",)),
    **dict.fromkeys(("monitor", "metric_for_best_model"), ("metric",)),
    "factor": ("factors", "gamma"),
    "min_lr": ("floor",),
    "wd": ("weight_decay",),
}
_PLACES = ("path", "train", "folder", "file", "files", "root", "dir", "directory", "url")


def synonym_of(name: str, known: Iterable[str]) -> str | None:
    """The setting of `known` that others call `name`."""
    names = list(known)
    return next((one for one in SYNONYMS.get(name, ()) if one in names), None)


def place_of(name: str, missing: Iterable[str]) -> str | None:
    """The setting of `missing` that says where something is, if `name` says that, too."""
    return next((one for one in missing if one in _PLACES), None) if name in _PLACES else None
