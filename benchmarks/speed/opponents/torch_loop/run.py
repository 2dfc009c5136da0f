"""The loop that a researcher writes first: one model, into which each client in turn loads the global weights."""

from benchmarks.speed import contract  # isort: skip  (the clock starts here)

import numpy as np
import torch

from benchmarks.speed.opponents.torch_model import build, probe_loss, tensors
from benchmarks.speed.workloads import WORKLOADS


def main() -> None:
    """Data in memory as one tensor; batches by indexing with a fresh permutation per epoch, no DataLoader."""
    args = contract.arguments()
    work = WORKLOADS[args.workload]
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    x, y = tensors(work)
    model, loss = build(work), torch.nn.CrossEntropyLoss()
    received = {name: value.clone() for name, value in model.state_dict().items()}

    def one_round() -> None:
        nonlocal received
        total = {name: torch.zeros_like(value) for name, value in received.items()}
        for k in rng.choice(work.clients, work.cohort, replace=False):
            model.load_state_dict(received)
            optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
            for _ in range(work.epochs):
                for rows in torch.randperm(work.examples).split(work.batch):
                    optimizer.zero_grad()
                    loss(model(x[k][rows]), y[k][rows]).backward()
                    optimizer.step()
            for name, value in model.state_dict().items():
                total[name] += value
        received = {name: value / work.cohort for name, value in total.items()}
        model.load_state_dict(received)

    contract.play(args, one_round, lambda: probe_loss(model, x, y), ("torch", "numpy"))


if __name__ == "__main__":
    main()
