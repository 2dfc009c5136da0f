"""pfl-research in one process: its FederatedAveraging, simulated backend and PyTorch model.

Stock behaviour kept: batches in stored order; users by ``MinimizeReuseUserSampler``, which its documentation
advises (and which takes everyone where the cohort is everyone). Every user's dataset object is made once and stays
in memory, with the batches that pfl caches in it. pfl insists on evaluating in its first iteration, which is a
warm-up round.
"""

from benchmarks.speed import contract  # isort: skip  (the clock starts here)

import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.speed.opponents.torch_model import build, mean_loss, probe_loss, tensors
from benchmarks.speed.workloads import WORKLOADS, quick


class Trained(torch.nn.Module):
    """A network with the two methods that pfl asks for."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of a batch."""
        self.train()
        return mean_loss(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict:
        """The same for pfl's evaluation."""
        self.eval()
        loss = mean_loss(self.network(x), y).item()
        return {"loss": Weighted(loss * len(y), len(y))}


class Clock(TrainingProcessCallback):
    """Time stamps: the start, and the end of every round."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def on_train_begin(self, *, model: object) -> Metrics:
        """Start."""
        self.stamps.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(self, metrics: Metrics, model: object, *, central_iteration: int) -> tuple:
        """One round more."""
        self.stamps.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    """One call of ``FederatedAveraging().run`` plays all rounds."""
    args = contract.arguments()
    work = WORKLOADS[args.workload]
    work = quick(work) if args.quick else work
    if work.rule != "fedavg":
        contract.refuse(f"it has no {work.rule}")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002  (the generator that pfl samples users with)
    x, y = tensors(work, args.data)
    users = [PyTorchTensorDataset((x[k], y[k])) for k in range(work.clients)]
    network = build(work, args.data)
    module = Trained(network)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    before = probe_loss(network, x, y)

    def federation() -> FederatedDataset:
        sampler = get_user_sampler("minimize_reuse", list(range(work.clients)))
        return FederatedDataset(users.__getitem__, sampler)

    backend = SimulatedBackend(federation(), federation(), postprocessors=[WeightByUser()])
    rounds, clock = args.warmup + args.rounds, Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=work.cohort,
            val_cohort_size=1,
        ),
        backend,
        model,
        NNTrainHyperParams(local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    after = probe_loss(network, x, y)
    contract.report_stamps(args, clock.stamps, before, after, ("pfl", "torch", "numpy"))


if __name__ == "__main__":
    main()
