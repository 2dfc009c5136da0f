"""Two networks of :mod:`benchmarks.speed.opponents.torch_networks`: CPU seconds of so many steps on one thread."""

import json
import sys
import time

import torch
from torch import nn

from benchmarks.speed.opponents.torch_networks import MODELS

BATCH = 50


def main() -> None:
    torch.set_num_threads(1)
    model, steps = MODELS[sys.argv[1]](), int(sys.argv[2])
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
