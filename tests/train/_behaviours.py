"""What people do with a model that is distributed: one small loop each, which returns what it has come to.

On several workers each comes to what it comes to on one. `REFUSED` are those that end in a sentence instead.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from train._own_loops import CLASSES, FEATURES, network, points

State = dict[str, Any]
Loop = Callable[[Any], State]


def batches(worker: Any, epochs: int = 3) -> Iterator[tuple[Tensor, Tensor]]:
    """Some epochs of 5 batches, the last of 3 samples."""
    loader = worker.feed(DataLoader(points(19), batch_size=4, shuffle=True))
    for _ in range(epochs):
        yield from loader


def sgd(*models: nn.Module, lr: float = 0.2, momentum: float = 0.9) -> torch.optim.SGD:
    return torch.optim.SGD([one for model in models for one in model.parameters()], lr=lr, momentum=momentum)


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def learn(
    worker: Any, model: nn.Module, optimizer: Any, loss: Callable[..., Tensor] = loss_of, epochs: int = 3
) -> State:
    for batch in batches(worker, epochs):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    return dict(model.state_dict())


def script(model: nn.Module) -> Any:
    with warnings.catch_warnings(action="ignore"):  # torch would have us use something else
        return torch.jit.script(model)


def adversarial(worker: Any, distribute: Callable[..., Any], momentum: float = 0.9) -> State:
    """A generator and a discriminator that learn in turn, each with its optimiser; gradients of one go through both."""
    torch.manual_seed(1)
    generator = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, FEATURES)).double()
    judge = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    of_generator, of_judge = (sgd(one, lr=0.05, momentum=momentum) for one in (generator, judge))
    distribute(worker, generator, judge, of_generator, of_judge)
    for real, _ in batches(worker):
        fake = generator(real[:, :2])
        of_judge.zero_grad()
        (functional.softplus(-judge(real)) + functional.softplus(judge(fake.detach()))).mean().backward()
        of_judge.step()
        of_generator.zero_grad()
        functional.softplus(-judge(fake)).mean().backward()
        of_generator.step()
    return {"generator": generator.state_dict(), "judge": judge.state_dict()}


def gan_in_two_calls(worker: Any, momentum: float = 0.9) -> State:
    def distribute(worker: Any, generator: Any, judge: Any, of_generator: Any, of_judge: Any) -> None:
        assert worker.distribute(generator, of_generator) == (generator, of_generator)
        assert worker.distribute(judge, of_judge) == (judge, of_judge)

    return adversarial(worker, distribute, momentum)


def gan_in_lists(worker: Any) -> State:
    def distribute(worker: Any, *parts: Any) -> None:
        assert worker.distribute(list(parts[:2]), list(parts[2:])) == (list(parts[:2]), list(parts[2:]))

    return adversarial(worker, distribute)


def one_optimizer_of_two_models(worker: Any) -> State:
    first, second = nn.Linear(FEATURES, 8).double(), nn.Linear(8, CLASSES).double()
    first.weight.data.fill_(0.1)
    second.weight.data.fill_(-0.1)
    first, second, optimizer = worker.distribute(first, second, sgd(first, second))
    chain = nn.Sequential(first, nn.Tanh(), second)
    return learn(worker, chain, optimizer)


def optimizer_made_later(worker: Any) -> State:
    model = worker.distribute(network())
    return learn(worker, model, torch.optim.AdamW(model.parameters(), lr=0.02))


def parameter_groups(worker: Any) -> State:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": [model[2].weight], "weight_decay": 0.1}]
    model, optimizer = worker.distribute(model, torch.optim.SGD(groups, lr=0.2))
    optimizer.add_param_group({"params": [model[2].bias], "lr": 0.05})
    return learn(worker, model, optimizer)


def frozen_and_thawed(worker: Any) -> State:
    model = network()
    model[0].requires_grad_(requires_grad=False)
    model, optimizer = worker.distribute(model, sgd(model))
    learn(worker, model, optimizer, epochs=1)
    model[0].requires_grad_()
    model[2].requires_grad_(requires_grad=False)
    return learn(worker, model, optimizer)


def head_replaced(worker: Any) -> State:
    model = worker.distribute(network())
    learn(worker, model, sgd(model), epochs=1)
    torch.manual_seed(7 + worker.rank)  # rank 0's values count
    model[2] = nn.Linear(8, CLASSES).double()
    return learn(worker, model, sgd(model))


def assigned(worker: Any) -> State:
    model = worker.distribute(network())
    learn(worker, model, sgd(model), epochs=1)
    model.load_state_dict({name: value.clone() * 0.5 for name, value in model.state_dict().items()}, assign=True)
    model.requires_grad_()
    return learn(worker, model, sgd(model))


def given_again(worker: Any) -> State:
    model = worker.distribute(network())
    model[2] = nn.Linear(8, CLASSES, bias=False).double()
    model[2].weight.data.fill_(0.1 * (1 + worker.rank))
    return learn(worker, worker.distribute(model), sgd(model))


def another_type_later(worker: Any) -> State:
    model = worker.distribute(network().float())
    model.double()
    return learn(worker, model, sgd(model))


def copied(worker: Any) -> State:
    model = worker.distribute(network())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = sgd(model)
    for batch in batches(worker):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        average.update_parameters(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)]
    scripted = script(copy.deepcopy(model))
    batch = points().tensors
    for other in others:
        loss_of(other, batch).backward()  # by itself, on whichever rank: nobody is asked
        assert not any(part._forward_pre_hooks or part._forward_hooks for part in other.modules())
    assert torch.equal(scripted(batch[0]), model(batch[0]))
    return {"model": model.state_dict(), "average": average.state_dict(), "copy": others[0].state_dict()}


def doubled(parameter: Tensor) -> None:
    parameter.grad *= 2


def own_hooks(worker: Any) -> State:
    """Hooks see the gradients of this worker's share, as they did before; and may change them."""
    model, seen = network(), []
    model[0].weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad is not None))
    model, optimizer = worker.distribute(model, sgd(model))
    handle = model[2].weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad is not None))
    model[2].bias.register_hook(lambda gradient: gradient * 0.5)
    model[0].bias.register_post_accumulate_grad_hook(doubled)
    learn(worker, model, optimizer)
    assert seen == [True] * 30
    handle.remove()
    learn(worker, model, optimizer, epochs=1)
    assert len(seen) == 35
    return dict(model.state_dict())


def sparse_with_sparse_adam(worker: Any) -> State:
    torch.manual_seed(1)
    model = nn.EmbeddingBag(30, CLASSES, sparse=True, mode="sum").double()
    model, optimizer = worker.distribute(model, torch.optim.SparseAdam(model.parameters(), lr=0.1))
    seen = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        seen.append(model.weight.grad is None or model.weight.grad.is_sparse)
        return functional.cross_entropy(model((batch[0].abs() * 10).long() % 30), batch[1])

    found = learn(worker, model, optimizer, loss)
    assert all(seen)
    assert model.weight.grad.is_sparse
    return found


def closures(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(
        model, torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    )
    losses = []
    for batch in batches(worker, 1):

        def closure(batch: Any = batch) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss.detach()

        losses.append(float(optimizer.step(closure)))
    return {"losses": torch.tensor(losses, dtype=torch.float64), **model.state_dict()}


def seeds_stay(worker: Any) -> State:
    torch.manual_seed(11)
    model = network()
    torch.manual_seed(12)
    worker.distribute(model, sgd(model))
    return {"drawn": torch.rand(3)}


def buffers(worker: Any) -> State:
    """Rank 0's, also of a buffer that the model assigns anew."""

    class Queue(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.register_buffer("newest", torch.zeros(1, dtype=torch.float64))

        def forward(self, inputs: Tensor) -> Tensor:
            self.newest = inputs[:1, 0].detach().clone()
            return self.inner(inputs)

    model = Queue()
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


def unused(worker: Any) -> State:
    """Layers that are never used, also under two names: no flag is needed."""
    never = nn.Linear(2, 2).double()
    model = nn.ModuleDict({"used": network(), "never": never, "nor by another name": never})
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer, lambda model, batch: loss_of(model["used"], batch))


def branches_by_samples(worker: Any) -> State:
    """A worker without a sample of a class leaves its branch out, as it does not know of others'; no flag is needed."""
    torch.manual_seed(1)
    model = nn.ModuleList(nn.Linear(FEATURES, 1).double() for _ in range(2))
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        parts = [(model[kind], batch[0][batch[1] == kind]) for kind in range(2)]
        return sum(branch(own).square().sum() for branch, own in parts if len(own)) / len(batch[0])

    return learn(worker, model, optimizer, loss)


def steps_without_backward(worker: Any) -> State:
    """A worker that has nothing to learn from calls optimizer.step() alone."""
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for inputs, targets in batches(worker):
        optimizer.zero_grad()
        chosen = inputs[:, 0] > 1
        if chosen.any():
            (functional.cross_entropy(model(inputs[chosen]), targets[chosen], reduction="sum") / len(inputs)).backward()
        optimizer.step()
    return dict(model.state_dict())


def odd_outputs(worker: Any) -> State:
    """A layer without output features, and an output that nothing is learnt from."""
    with warnings.catch_warnings(action="ignore"):  # torch has nothing to initialise
        model = nn.ModuleDict({"used": network(), "empty": nn.Linear(FEATURES, 0).double()})
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        assert not model["used"](batch[0]).detach().requires_grad
        return loss_of(model["used"], batch) + model["empty"](batch[0]).sum()

    return learn(worker, model, optimizer, loss)


def sharpness_aware(worker: Any) -> State:
    """Two backward passes a step, the second at other parameters, which are moved in place."""
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for batch in batches(worker):
        loss_of(model, batch).backward()
        moves = [0.05 * one.grad.clone() for one in model.parameters()]
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), moves)
        loss_of(model, batch).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()
    return dict(model.state_dict())


def two_optimizers_of_one_model(worker: Any) -> State:
    """Of which worker.distribute is given one."""
    model = network()
    first, second = sgd(model[0]), torch.optim.Adam(model[2].parameters(), lr=0.01)
    worker.distribute(model, first)
    for batch in batches(worker):
        loss_of(model, batch).backward()
        for one in (first, second):
            one.step()
            one.zero_grad()
    return dict(model.state_dict())


def normed_weights(worker: Any) -> State:
    model = network()
    nn.utils.parametrizations.weight_norm(model[0])
    nn.utils.parametrizations.spectral_norm(model[2])
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


def complex_parameters(worker: Any) -> State:
    torch.manual_seed(1)
    model = nn.Linear(FEATURES, CLASSES, dtype=torch.complex128)
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(
        worker, model, optimizer, lambda model, batch: loss_of(lambda one: model(one.to(torch.complex128)).abs(), batch)
    )


def own_collectives(worker: Any) -> State:
    """Calls of the user's own to torch.distributed, between the steps and within."""
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for batch in batches(worker, 1):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if worker.world_size > 1:
            together = torch.ones(3)
            torch.distributed.all_reduce(together)
            assert together.tolist() == [worker.world_size] * 3
        optimizer.step()
    return dict(model.state_dict())


def shared_parameters(worker: Any) -> State:
    model = network()
    model.add_module("3", nn.Tanh())
    model.add_module("4", nn.Linear(CLASSES, CLASSES).double())
    model.add_module("5", model[4])
    with torch.no_grad():
        model[4].weight.fill_(0.3)
        model[4].bias.fill_(0.0)
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


def nested_outputs(worker: Any) -> State:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, inputs: Tensor) -> Any:
            return {"out": [(self.inner(inputs), "text")], "plain": inputs}

    model = Nested()
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(
        worker, model, optimizer, lambda model, batch: functional.cross_entropy(model(batch[0])["out"][0][0], batch[1])
    )


def another_method_than_forward(worker: Any) -> State:
    class Methods(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def loss(self, batch: Any) -> Tensor:
            return loss_of(self.inner, batch)

    model = Methods()
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer, lambda model, batch: model.loss(batch))


def twice_and_evaluated_between(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        with torch.no_grad():
            model.eval()(batch[0])
        return loss_of(model.train(), batch) + loss_of(model, batch) * 0.5

    return learn(worker, model, optimizer, loss)


def double_backward(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs = batch[0].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(inputs).square().sum(), inputs, create_graph=True)
        return loss_of(model, batch) + gradient.square().sum(1).mean()

    return learn(worker, model, optimizer, loss)


def by_hand(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for batch in batches(worker):
        optimizer.zero_grad()
        for one, gradient in zip(
            model.parameters(), torch.autograd.grad(loss_of(model, batch), list(model.parameters())), strict=True
        ):
            one.grad = gradient
        optimizer.step()
    return dict(model.state_dict())


def checkpointed(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs = batch[0].clone().requires_grad_()
        return functional.cross_entropy(checkpoint(model, inputs, use_reentrant=True), batch[1])

    return learn(worker, model, optimizer, loss)


def compiled_before_and_after(worker: Any) -> State:
    model = torch.compile(network(), backend="aot_eager")
    model, optimizer = worker.distribute(model, sgd(model))
    found = learn(worker, model, optimizer, epochs=1)
    after = worker.distribute(network())
    return {"before": found, "after": learn(worker, torch.compile(after, backend="aot_eager"), sgd(after), epochs=1)}


def scripted(worker: Any) -> State:
    model = script(network())
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


EQUAL: list[Loop] = [
    gan_in_two_calls,
    gan_in_lists,
    one_optimizer_of_two_models,
    optimizer_made_later,
    parameter_groups,
    frozen_and_thawed,
    head_replaced,
    assigned,
    given_again,
    another_type_later,
    copied,
    own_hooks,
    sparse_with_sparse_adam,
    closures,
    seeds_stay,
    buffers,
    unused,
    branches_by_samples,
    steps_without_backward,
    odd_outputs,
    sharpness_aware,
    two_optimizers_of_one_model,
    normed_weights,
    complex_parameters,
    own_collectives,
    shared_parameters,
    nested_outputs,
    another_method_than_forward,
    twice_and_evaluated_between,
    double_backward,
    by_hand,
    checkpointed,
    scripted,
]


def replaced_within_a_step(worker: Any) -> State:
    model = worker.distribute(network())
    for batch in batches(worker):
        model[2] = nn.Linear(8, CLASSES).double()
        loss_of(model, batch).backward()
        sgd(model).step()
    return {}


def parameter_of_nobody(worker: Any) -> State:
    scale = nn.Parameter(torch.ones(1))
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD([*model.parameters(), scale], lr=0.1))
    return learn(worker, model, optimizer)


def step_in_backward(worker: Any) -> State:
    model = worker.distribute(network())
    for one in model.parameters():
        one.register_post_accumulate_grad_hook(lambda own: torch.optim.SGD([own], lr=0.1).step())
    for batch in batches(worker):
        loss_of(model, batch).backward()
    return {}


def two_models_that_share(worker: Any) -> State:
    first, second = network(), network()
    second[0] = first[0]
    worker.distribute(first, second)
    return {}


def other_shapes(worker: Any) -> State:
    worker.distribute(nn.Linear(FEATURES, CLASSES + worker.rank))
    return {}


def nonsense(worker: Any) -> State:
    worker.distribute(network(), torch.optim.lr_scheduler.StepLR(sgd(network()), 3))
    return {}


REFUSED: dict[Loop, str] = {
    replaced_within_a_step: (
        "SettingError: the model has other layers, which no worker.feed has seen before this step; accepted: such "
        "changes before the next batch is taken, or worker.distribute(model) after them"
    ),
    parameter_of_nobody: (
        "BadInput: SGD holds a parameter of shape (1,) that no distributed model has, so that workers would not agree "
        "on it; accepted: parameters of models that worker.distribute was given, each in a module"
    ),
    step_in_backward: (
        "SettingError: optimizer.step() was called within backward(), where gradients have not been agreed on"
    ),
    two_models_that_share: (
        "BadInput: worker.distribute: 0.weight is a parameter of a model that is distributed already; accepted: both "
        "models in one module, as torch.nn.ModuleList([first, second])"
    ),
    other_shapes: (
        "RanksDiffer: ranks differ, so nothing was started:\n"
        "  parameter weight: rank 0: (3, 5) float32; rank 1: (4, 5) float32\n"
        "  parameter bias: rank 0: (3,) float32; rank 1: (4,) float32"
    ),
    nonsense: (
        "BadInput: worker.distribute was given a StepLR; accepted: torch modules and optimisers, and lists of these"
    ),
}
