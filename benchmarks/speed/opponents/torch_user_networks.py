"""The networks of ``benchmarks.speed.user_networks`` in PyTorch: CPU seconds of so many steps on one thread."""

import json
import sys
import time

import torch
from torch import nn

BATCH = 50


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(4, width, eps=1e-6) for _ in range(2))
        self.short = nn.Identity()
        if inputs != width or stride > 1:
            short = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.short = nn.Sequential(short, nn.GroupNorm(4, width, eps=1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet(width: int = 8) -> nn.Module:
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.GroupNorm(4, width, eps=1e-6), nn.ReLU()]
    inputs = width
    for stage in range(4):
        for stride in (2 if stage else 1, 1):
            layers.append(Block(inputs, width * 2**stage, stride))
            inputs = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def cnn() -> nn.Module:
    first = nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*first, *second, nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 10))


def main() -> None:
    torch.set_num_threads(1)
    model, steps = {"cnn": cnn, "resnet": resnet}[sys.argv[1]](), int(sys.argv[2])
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.05), nn.CrossEntropyLoss()
    x, y = torch.randn(400, 3, 32, 32), torch.randint(0, 10, (400,))

    def play(count: int) -> None:
        for _ in range(count):
            rows = torch.randperm(len(x))[:BATCH]
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()

    play(2)
    begin = time.process_time()
    play(steps)
    print(json.dumps({"cpu_s": time.process_time() - begin}))


if __name__ == "__main__":
    main()
