"""Cross-entropy of class scores, for one target per sample or one per position of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from volary.errors import SettingError, TargetError
from volary.network.criteria.class_weights import Wanted, weights_of_classes
from volary.network.criteria.fit import described, main_output
from volary.network.criteria.measures import Measures

BESIDE = ("accuracy", "perplexity")  # measured whatever decides
IGNORED = -100  # torch counts such a target for nothing
Output = Tensor | tuple[Tensor, ...]


class Classification:
    """Scores (samples, classes) with targets (samples,), or one score for each class at each position of a sequence.

    Scores may have sides of 1 behind the classes, as the last layer of a convolutional network gives them.
    Sequences: (samples, time, classes), or torch's own order (samples, classes, time), with targets (samples, time).
    What fits both, as there are as many positions as classes, is read as (samples, time, classes).
    A tuple of scores is an answer followed by auxiliary answers, which the loss counts at `auxiliary_weight`.
    ignore_index: a target that counts for nothing, beside IGNORED, which never does. class_weights: how much a target
    of each class counts; none: all alike; those that the data decides are known after `weigh`. Targets may also be
    shares of the first classes (samples, classes), of which a sample may have less than 1 in all.
    """

    takes_shares = True

    def __init__(
        self,
        measures: Measures,
        label_smoothing: float,
        auxiliary_weight: float,
        ignore_index: int = IGNORED,
        class_weights: Wanted = (),
    ) -> None:
        self.label_smoothing, self._ignore_index = label_smoothing, ignore_index
        self.auxiliary_weight = auxiliary_weight
        self._wanted = class_weights
        self._weights = None if isinstance(class_weights, str | Mapping) else weights_of_classes(class_weights)
        self._cast = self._weights
        self._measures = measures
        self.metric = self._measures.metric
        self.higher_is_better = self._measures.higher_is_better

    def suit(self, classes: int) -> None:
        """Let metrics keep sums for so many classes. Raises SettingError if that does not suit one."""
        self._measures.suit(classes)

    def weigh(self, names: Sequence[str], counts: Callable[[], Tensor]) -> None:
        """Weigh targets from now on by the classes of the data, as the session says."""
        self._cast = self._weights = weights_of_classes(self._wanted, names, counts)

    @property
    def measured(self) -> tuple[str, ...]:
        """The loss, and the metrics, each for as many rows as it has."""
        return self._measures.names

    def __call__(self, output: Output, target: Tensor) -> Tensor:
        """Mean over the samples (and positions) of the natural logarithm's cross-entropy."""
        if not isinstance(output, Tensor):
            answer, *others = (self(each, target) for each in output)
            return torch.stack([answer, *(self.auxiliary_weight * other for other in others)]).sum()
        if _are_shares(target):
            return self._of_shares(classes_last(output, ()), target)
        samples, target = len(target), self._kept(target)
        if output.dim() > 2:
            output, target = classes_last(output, tuple(target.shape[1:])).flatten(0, -2), target.flatten()
        with _named(output, target, samples):
            return cross_entropy(output, target, self._weight(output), label_smoothing=self.label_smoothing)

    def _of_shares(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean of the losses that each class alone would have as the target, each for its share."""
        logs = log_softmax(output, 1)
        of_each = self._of_each(target)
        chosen = (of_each * logs[:, : target.shape[1]]).sum()
        weight = self._weight(output)
        spread = (logs if weight is None else logs * weight).mean(1) @ target.sum(1).to(logs.dtype)
        return -((1 - self.label_smoothing) * chosen + self.label_smoothing * spread) / of_each.sum()

    def _of_each(self, target: Tensor) -> Tensor:
        """Shares (samples, classes), each times its class's weight."""
        weight = self._weight(target)
        return target if weight is None else target * weight[: target.shape[1]]

    def _weight(self, like: Tensor) -> Tensor | None:
        """The weights (classes,) in the type that a loss of scores `like` these, of any shape, is computed in."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        if self._cast is not None and (self._cast.dtype, self._cast.device) != (dtype, like.device):
            assert self._weights is not None
            self._cast = self._weights.to(like.device, dtype)
        return self._cast

    def counted(self, target: Tensor) -> float:
        """The targets that are not ignored, each with the weight of its class."""
        if _are_shares(target):
            return float(self._of_each(target).sum())
        return float(self._worth(self._kept(target)))

    def _worth(self, kept: Tensor) -> Tensor:
        """A scalar: how much of targets counts."""
        if self._weights is None:
            return (kept != IGNORED).sum()
        there, weight = kept[kept != IGNORED], self._weights.to(kept.device, torch.float64)
        # one that no score belongs to is for the loss itself to refuse
        return weight[there[(there >= 0) & (there < len(weight))]].sum()

    def totals(self, output: Output, target: Tensor) -> Tensor:
        """Sums of the loss and of metrics, a row each, and how many targets are not ignored."""
        scores = classes_last(main_output(output), tuple(target.shape[1:]))
        positions, samples = scores.dim() > 2, len(target)
        scores, target = scores.flatten(0, -2).float(), self._kept(target).flatten()
        with _named(scores, target, samples):
            weight = self._weight(scores)
            loss = cross_entropy(scores, target, weight, reduction="sum", label_smoothing=self.label_smoothing)
        count = (target != IGNORED).sum()
        return self._measures.totals(loss, scores, target, count, worth=self._worth(target), positions=positions)

    def _kept(self, target: Tensor) -> Tensor:
        """The targets, with IGNORED for each that counts for nothing."""
        return target if self._ignore_index == IGNORED else target.masked_fill(target == self._ignore_index, IGNORED)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Loss and accuracy; perplexity for sequences; and what was asked for, whatever the outputs are."""
        return self._measures.figures(totals)

    def check(self, network: str, output: object, target_shape: tuple[int, ...] | None, classes: int | None) -> None:
        """Refuse scores of another shape than the targets have, and fewer scores than there are classes.

        Raises SettingError.
        """
        for answer in _answers(output, network):
            shape = tuple(classes_last(answer, target_shape or ()).shape)
            fits = len(shape) in (2, 3) if target_shape is None else shape[1:-1] == target_shape and len(shape) > 1
            if not fits:
                takes = "(samples, classes), (samples, time, classes) or (samples, classes, time)"
                targets = "" if target_shape is None else f"; the data's targets have {described(target_shape)}"
                raise SettingError(
                    f"network {network!r} gives shape {described(tuple(answer.shape[1:]))}; cross_entropy takes "
                    f"{takes}{targets}"
                )
            if self._weights is not None and len(self._weights) != shape[-1]:
                raise SettingError(
                    f"loss.class_weights has {len(self._weights)} numbers, and network {network!r} gives {shape[-1]} "
                    "outputs; accepted: a number for each"
                )
            only_ignored = self._ignore_index + 1 == classes  # the highest label, of which there is no score
            if classes and shape[-1] < classes and not only_ignored:
                raise SettingError(f"network {network!r} gives {shape[-1]} outputs but the data has {classes} classes")


def _are_shares(target: Tensor) -> bool:
    return target.is_floating_point() and target.dim() == 2


def classes_last(scores: Tensor, target_shape: tuple[int, ...]) -> Tensor:
    """Scores (samples, ..., classes) for targets of `target_shape` each; (samples, classes, ...) is turned round.

    An image of one pixel, (samples, classes, 1, 1), is the scores of its sample: convolutional networks end so.
    """
    if target_shape == () and scores.dim() > 2 and set(scores.shape[2:]) == {1}:
        return scores.flatten(1)
    turned = tuple(scores.shape[1:-1]) != target_shape and tuple(scores.shape[2:]) == target_shape
    return scores.movedim(1, -1) if turned and scores.dim() > 2 else scores


def _answers(output: object, network: str) -> tuple[Tensor, ...]:
    """The answer and its auxiliary ones. Raises SettingError where one of them is no tensor."""
    main_output(output, network, "cross_entropy")
    answers = output if isinstance(output, tuple) else (output,)
    for number, answer in enumerate(answers, start=1):
        if not isinstance(answer, Tensor):
            raise SettingError(
                f"network {network!r} gives a tuple whose item {number} is of type {type(answer).__name__}; "
                "cross_entropy takes a tensor, or a tuple of scores: the answer, then auxiliary answers"
            )
    return answers


@contextmanager
def _named(scores: Tensor, target: Tensor, samples: int) -> Iterator[None]:
    """Name the first target that no score belongs to, where torch refuses it: on CUDA it stops the device instead."""
    try:
        yield
    except IndexError:
        outputs = scores.shape[-1]
        bad = ((target < 0) & (target != IGNORED)) | (target >= outputs)
        if not bad.any():
            raise
        first = int(bad.nonzero()[0])
        accepted = f"0 to {outputs - 1}, since the network gives {outputs} outputs, one for each class"
        raise TargetError(int(target[first]), accepted, first * samples // len(target)) from None
