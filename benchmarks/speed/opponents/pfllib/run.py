"""PFLlib's own clients of SCAFFOLD and Ditto, one after another, on a workload of ours; prints seconds a round.

    python -m benchmarks.speed.opponents.pfllib.run --source PFLlib --method scaffold --workload mlp-fmnist

In its favour: the data lie in memory (its clients read a file in every round), only the clients of the round are
sent the model, and nothing is evaluated.
"""

import argparse
import copy
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.speed.opponents.torch_model import build, tensors
from benchmarks.speed.workloads import WORKLOADS, Workload


def clients_of(method: str, work: Workload, source: Path) -> list[Any]:
    """All clients of PFLlib's class for the method."""
    sys.path.insert(0, str(source / "system"))
    from flcore.clients.clientditto import clientDitto
    from flcore.clients.clientscaffold import clientSCAFFOLD

    model = build(work)
    settings = SimpleNamespace(
        **{"model": model, "algorithm": method, "dataset": "", "device": "cpu", "save_folder_name": ""},
        **{"num_classes": 10, "batch_size": work.batch, "local_learning_rate": work.lr, "few_shot": 0},
        **{"local_epochs": work.epochs, "learning_rate_decay_gamma": 0.99, "learning_rate_decay": False},
        **{"mu": 1.0, "plocal_epochs": work.epochs},
    )
    kind = clientSCAFFOLD if method == "scaffold" else clientDitto
    x, y = tensors(work)
    made = []
    for k in range(work.clients):
        client = kind(settings, k, work.examples, 0, train_slow=False, send_slow=False)
        data = torch.utils.data.TensorDataset(x[k], y[k])
        client.load_train_data = lambda batch_size=None, data=data: torch.utils.data.DataLoader(
            data, work.batch, drop_last=True, shuffle=True
        )
        made.append(client)
    return made


def main() -> None:
    """Rounds as in PFLlib's servers: send, train, aggregate."""
    parser = argparse.ArgumentParser()
    for name in ("source", "method", "workload"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    work = WORKLOADS[options.workload]
    torch.set_num_threads(2)
    clients = clients_of(options.method, work, Path(options.source))
    model, rng = copy.deepcopy(clients[0].model), np.random.default_rng(0)
    control = [torch.zeros_like(p) for p in model.parameters()]
    seconds = []
    for _ in range(options.rounds + 1):
        begun = time.perf_counter()
        chosen = [clients[k] for k in rng.choice(work.clients, work.cohort, replace=False)]
        for client in chosen:
            client.set_parameters(model, control) if options.method == "scaffold" else client.set_parameters(model)
        for client in chosen:
            if options.method == "ditto":
                client.ptrain()
            client.train()
        moved, turned = copy.deepcopy(model), copy.deepcopy(control)
        if options.method == "scaffold":
            for client in chosen:
                updates, changes = client.delta_yc()
                for p, u in zip(moved.parameters(), updates):
                    p.data += u.data / work.cohort
                for c, u in zip(turned, changes):
                    c.data += u.data / work.clients
        else:
            for p in moved.parameters():
                p.data.zero_()
            for client in chosen:
                for p, own in zip(moved.parameters(), client.model.parameters()):
                    p.data += own.data / work.cohort
        model, control = moved, turned
        seconds.append(time.perf_counter() - begun)
    print(*[f"{value:.6f}" for value in seconds[1:]])


if __name__ == "__main__":
    main()
