"""All clients of the round at once by ``torch.func``: vmapped gradients of stacked parameters."""

from benchmarks.speed import contract  # isort: skip  (the clock starts here)

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

from benchmarks.speed.opponents.torch_model import build, probe_loss, tensors
from benchmarks.speed.workloads import WORKLOADS


def main() -> None:
    """The stacked parameters are expanded, trained and averaged; plain SGD is a subtraction."""
    args = contract.arguments()
    work = WORKLOADS[args.workload]
    if work.needs_file:
        contract.refuse("written for stacks of dense layers and clients of equal size only")
    if len(work.shape) > 1:
        contract.refuse("convolutions with weights of each client's own become grouped ones")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    x, y = tensors(work)
    model = build(work)
    received = {name: value.detach().clone() for name, value in model.named_parameters()}

    def loss(params: dict, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(model, params, (features,)), labels)

    gradients = vmap(grad(loss))

    @torch.no_grad()
    def one_round() -> None:
        nonlocal received
        chosen = torch.from_numpy(rng.choice(work.clients, work.cohort, replace=False))
        params = {name: value.expand(work.cohort, *value.shape).clone() for name, value in received.items()}
        for _ in range(work.epochs):
            order = torch.rand(work.cohort, work.examples).argsort(1)
            for rows in order.split(work.batch, dim=1):
                found = gradients(params, x[chosen[:, None], rows], y[chosen[:, None], rows])
                for name, value in params.items():
                    value.sub_(found[name], alpha=work.lr)
        received = {name: value.mean(0) for name, value in params.items()}
        model.load_state_dict(received)

    contract.play(args, one_round, lambda: probe_loss(model, x, y), ("torch", "numpy"))


if __name__ == "__main__":
    main()
