"""The loop that a researcher writes first: one model, into which each client in turn loads the global weights."""

from benchmarks.speed import contract  # isort: skip  (the clock starts here)

import argparse
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.speed.opponents.torch_model import build, mean_loss, probe_loss, tensors
from benchmarks.speed.workloads import WORKLOADS, quick

Weigh = Callable[[np.ndarray, Callable[[int], float]], np.ndarray]
"""``(ids of the cohort, id -> loss of the received model) -> weights``."""


def equal(ids: np.ndarray, loss: Callable[[int], float]) -> np.ndarray:
    """FedAvg of equal weights."""
    return np.full(len(ids), 1 / len(ids))


def fedmaba(clients: int, alpha: float = 0.5, eta: float = 0.5, rho: float = 1.0) -> Weigh:
    """FedMABA, with the package's default settings."""
    log_p = np.full(clients, -np.log(clients))

    def normalized(logs: np.ndarray) -> np.ndarray:
        return logs - logs.max() - np.log(np.exp(logs - logs.max()).sum())

    def weigh(ids: np.ndarray, loss: Callable[[int], float]) -> np.ndarray:
        raised = normalized(log_p[ids] + eta * np.array([loss(k) for k in ids]))

        def beyond(s: float) -> bool:
            logs = normalized(s * raised)
            return bool((np.exp(logs) * (logs + np.log(len(ids)))).sum() > rho)

        low, high = (0.0, 1.0) if beyond(1.0) else (1.0, 1.0)
        while high - low > 1e-6:
            low, high = (low, (low + high) / 2) if beyond((low + high) / 2) else ((low + high) / 2, high)
        found = normalized(low * raised)
        log_p[ids] = found + np.log(np.exp(log_p[ids]).sum())
        return alpha * np.exp(found) + (1 - alpha) / len(ids)

    return weigh


def on_a_gpu(parser: argparse.ArgumentParser) -> None:
    """The two arguments that only this loop has."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tf32", action="store_true", help="products on a GPU in TF32, else in float32")


def main() -> None:
    """Data in memory as tensors; batches by indexing with a fresh permutation per epoch, no DataLoader."""
    args = contract.arguments(on_a_gpu)
    work = WORKLOADS[args.workload]
    work = quick(work) if args.quick else work
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    rng, device = np.random.default_rng(args.seed), torch.device(args.device)
    x, y = ([part.to(device) for part in parts] for parts in tensors(work, args.data))
    model = build(work, args.data).to(device)
    received = {name: value.clone() for name, value in model.state_dict().items()}
    weigh = {"fedavg": equal, "fedmaba": fedmaba(work.clients)}[work.rule]

    @torch.no_grad()
    def received_loss(k: int) -> float:
        return mean_loss(model(x[k]), y[k]).item()

    def one_round() -> None:
        nonlocal received
        total = {name: torch.zeros_like(value) for name, value in received.items()}
        chosen = rng.choice(work.clients, work.cohort, replace=False)
        for k, weight in zip(chosen, weigh(chosen, received_loss)):
            model.load_state_dict(received)
            optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
            for _ in range(work.epochs):
                for rows in torch.randperm(len(y[k]), device=device).split(work.batch):
                    optimizer.zero_grad()
                    mean_loss(model(x[k][rows]), y[k][rows]).backward()
                    optimizer.step()
            for name, value in model.state_dict().items():
                total[name].add_(value, alpha=float(weight))
        received = total
        model.load_state_dict(received)
        if device.type == "cuda":  # the clock is to stop when the work has ended, not when it has been asked for
            torch.cuda.synchronize()

    together = 1 if work.even else args.call
    contract.play(args, one_round, lambda: probe_loss(model, x, y), ("torch", "numpy"), together)


if __name__ == "__main__":
    main()
