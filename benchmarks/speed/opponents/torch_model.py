"""The workloads' models and data in PyTorch, for every opponent that is built on it."""

import torch
from torch import nn

from benchmarks.speed.workloads import PROBED, Workload, channels_first, layers, make_data, to_torch


def build(work: Workload) -> nn.Sequential:
    """The model, its initial parameters loaded."""
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
    given = [torch.from_numpy(array) for pair in to_torch(work) for array in pair]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), given, strict=True):
            parameter.copy_(value)
    return model


def tensors(work: Workload) -> tuple[torch.Tensor, torch.Tensor]:
    """Features [N, n, ...] with channels first, and labels i64[N, n]."""
    x, y = make_data(work)
    return torch.from_numpy(channels_first(x)), torch.from_numpy(y).long()


@torch.no_grad()
def probe_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Mean loss on the data of the first clients."""
    training = model.training
    model.eval()
    losses = [nn.functional.cross_entropy(model(x[k]), y[k]).item() for k in range(PROBED)]
    model.train(training)
    return sum(losses) / len(losses)
