"""The first table's work as one writes it first in PyTorch: rule by rule, round by round, client by client.

``python first_table_loop.py DATA.npz`` prints one JSON line. The weights of the rules that read losses are a
softmax of them: what a rule computes from ten numbers costs nothing beside training.
"""

import json
import sys
import time

START = time.perf_counter()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

RULES = ("fedavg", "uniform", "qfedavg", "afl", "fedmaba", "aaggff_d")
READ_LOSSES = RULES[2:]
ROUNDS, COHORT, LR, BATCH, EVERY = 200, 10, 0.1, 50, 10


def tensors(arrays: dict, place: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(arrays[f"{place}/x"]), torch.from_numpy(arrays[f"{place}/y"]).long()


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for rows in torch.randperm(len(y)).split(BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


@torch.no_grad()
def score(model: nn.Module, splits: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    return [(model(x).argmax(1) == y).float().mean().item() for x, y in splits]


def play(rule: str, training: list, testing: list, rng: np.random.Generator) -> list[list[float]]:
    model, found = nn.Linear(training[0][0].shape[1], 10), []
    received = {name: value.clone() for name, value in model.state_dict().items()}
    for t in range(ROUNDS):
        cohort = rng.choice(len(training), COHORT, replace=False)
        weights = np.array([len(training[k][1]) if rule == "fedavg" else 1.0 for k in cohort])
        if rule in READ_LOSSES:
            with torch.no_grad():
                losses = [nn.functional.cross_entropy(model(training[k][0]), training[k][1]).item() for k in cohort]
            weights = np.exp(np.array(losses) - max(losses))
        total = {name: torch.zeros_like(value) for name, value in received.items()}
        for k, weight in zip(cohort, weights / weights.sum()):
            model.load_state_dict(received)
            train(model, *training[k])
            for name, value in model.state_dict().items():
                total[name] += float(weight) * value
        received = total
        model.load_state_dict(received)
        if (t + 1) % EVERY == 0:
            found.append(score(model, testing))
    return found


def references(training: list, testing: list) -> None:
    rounds = round(ROUNDS * COHORT / len(training))
    for x, y in training:
        model = nn.Linear(x.shape[1], 10)
        for _ in range(rounds):
            train(model, x, y)
        score(model, testing)
    model = nn.Linear(training[0][0].shape[1], 10)
    x, y = (torch.cat(parts) for parts in zip(*training))
    for _ in range(rounds):
        train(model, x, y)
    score(model, testing)


def main() -> None:
    arrays, worst = np.load(sys.argv[1]), []
    torch.set_num_threads(2)
    for r in range(5):
        torch.manual_seed(r)
        pairs = {
            split: [
                (
                    torch.from_numpy(arrays[f"{r}/{split}/{k}/x"]),
                    torch.from_numpy(arrays[f"{r}/{split}/{k}/y"]).long(),
                )
                for k in range(30)
            ]
            for split in ("train", "test")
        }
        for rule in RULES:
            found = play(rule, pairs["train"], pairs["test"], np.random.default_rng(r))
            worst.append(float(np.mean(np.sort(found[-1])[:3])))
        references(pairs["train"], pairs["test"])
    print(json.dumps({"seconds": time.perf_counter() - START, "worst10": worst, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
