"""Flower's simulation runtime on Ray with its FedAvg strategy: one worker of one thread per allowed thread.

Stock behaviour kept: Flower's in-memory grid asks for replies every so often instead of being told, which on small
workloads is most of the round. ``run_simulation`` is marked as deprecated but is the way to time single rounds.
"""

from benchmarks.speed import contract  # isort: skip  (the clock starts here)

import logging
import os
import random
import time

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.speed.opponents.flower import client
from benchmarks.speed.opponents.torch_model import build, probe_loss, tensors
from benchmarks.speed.workloads import WORKLOADS


def main() -> None:
    """The strategy calls ``evaluate_fn`` before the first round and after each: the time stamps."""
    args = contract.arguments()
    work = WORKLOADS[args.workload]
    if work.needs_file:
        contract.refuse("its workers make data and model of the five older workloads only")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(args.threads)
    random.seed(args.seed)  # Flower samples nodes with it
    model, (x, y) = build(work), tensors(work)
    before = probe_loss(model, x, y)
    stamps: list[float] = []
    results: list[ArrayRecord] = []
    server = ServerApp()

    def stamp(round: int, arrays: ArrayRecord) -> None:
        stamps.append(time.perf_counter())

    @server.main()
    def play(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=min(1.0, (work.cohort + 0.5) / work.clients),  # Flower rounds down
            fraction_evaluate=0.0,
            min_train_nodes=work.cohort,
            min_available_nodes=work.clients,
        )
        config = ConfigRecord({"workload": work.name, "threads": 1})
        rounds = args.warmup + args.rounds
        start = ArrayRecord(model.state_dict())
        outcome = strategy.start(grid, start, rounds, train_config=config, evaluate_fn=stamp)
        results.append(outcome.arrays)

    run_simulation(
        server_app=server,
        client_app=client.app,
        num_supernodes=work.clients,
        backend_config={
            "init_args": {"num_cpus": args.threads, "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    model.load_state_dict(results[0].to_torch_state_dict())
    after = probe_loss(model, x, y)
    contract.report_stamps(args, stamps, before, after, ("flwr", "ray", "torch", "numpy"))


if __name__ == "__main__":
    main()
