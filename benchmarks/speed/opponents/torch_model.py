"""The workloads' models and data in PyTorch, for every opponent that is built on it."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from benchmarks.speed.opponents.torch_networks import build_network
from benchmarks.speed.workloads import PROBED, Workload, channels_first, given, layers, load, to_torch


def build(work: Workload, data: Path | None = None) -> nn.Module:
    """The model, its initial parameters loaded."""
    if work.network:
        return build_network(work.network, given(data))
    shapes = iter(layers(work))
    made: list[nn.Module] = []
    for name, *settings in work.model:
        if name == "conv":
            layer = next(shapes)
            made.append(nn.Conv2d(layer.kernel[2], layer.kernel[3], layer.kernel[0]))
        elif name == "dense":
            layer = next(shapes)
            made.append(nn.Linear(*layer.kernel))
        else:
            plain = {"relu": nn.ReLU, "flatten": nn.Flatten, "pool": lambda: nn.MaxPool2d(2), "dropout": nn.Dropout}
            made.append(plain[name](*settings))
    model = nn.Sequential(*made)
    values = [torch.from_numpy(array) for pair in to_torch(work) for array in pair]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)
    return model


def tensors(work: Workload, data: Path | None = None) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Each client's features, channels first, and labels i64."""
    xs, ys = load(work, data)
    if work.even:
        return torch.from_numpy(channels_first(xs)), torch.from_numpy(ys).long()
    return [torch.from_numpy(x) for x in xs], [torch.from_numpy(y).long() for y in ys]


def mean_loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of a batch, of all letters of a text."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), y.flatten())


@torch.no_grad()
def probe_loss(model: nn.Module, x: Sequence[torch.Tensor], y: Sequence[torch.Tensor]) -> float:
    """Mean of the losses of the first clients."""
    training = model.training
    model.eval()
    losses = [mean_loss(model(x[k]), y[k]).item() for k in range(PROBED)]
    model.train(training)
    return sum(losses) / len(losses)
