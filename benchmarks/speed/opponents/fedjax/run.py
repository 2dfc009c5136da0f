"""FedJAX's own FedAvg on its ``fedjax.for_each_client`` with the jit backend: one jitted call per local step.

Adaptations, none in a hot path: ``jax.tree_map`` and its kin, which JAX removed after FedJAX 0.0.17, are put back
before the import. (Its pmap backend needs more that JAX removed, and pays with several devices only.) Models are
written in Haiku, as in FedJAX's examples.
"""

from benchmarks.speed import contract  # isort: skip  (the clock starts here)

import jax
import numpy as np

for name in ("tree_map", "tree_leaves", "tree_flatten", "tree_unflatten"):
    if not hasattr(jax, name):
        setattr(jax, name, getattr(jax.tree_util, name))

import fedjax  # noqa: E402
import haiku as hk  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402

from benchmarks.speed.workloads import PROBED, WORKLOADS, Workload, initial, layers, make_data  # noqa: E402

EVALUATED_AT_ONCE = 500


def network(work: Workload, train: bool) -> hk.Transformed:
    """The workload's model."""

    def forward(batch: dict) -> jax.Array:
        x = batch["x"]
        for name, *settings in work.model:
            if name == "conv":
                x = hk.Conv2D(settings[1], settings[0], padding="VALID")(x)
            elif name == "dense":
                x = hk.Linear(settings[0])(x)
            elif name == "relu":
                x = jax.nn.relu(x)
            elif name == "pool":
                x = hk.max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            elif name == "flatten":
                x = hk.Flatten()(x)
            elif train:
                x = hk.dropout(hk.next_rng_key(), settings[0], x)
        return x

    return hk.transform(forward)


def start(work: Workload) -> dict:
    """The workload's initial parameters under Haiku's names."""
    counts, params = {"conv": 0, "dense": 0}, {}
    for layer, (kernel, bias) in zip(layers(work), initial(work)):
        stem = "conv2_d" if layer.kind == "conv" else "linear"
        number = counts[layer.kind]
        counts[layer.kind] += 1
        params[stem if number == 0 else f"{stem}_{number}"] = {
            "w": jax.numpy.array(kernel),
            "b": jax.numpy.array(bias),
        }
    return params


def main() -> None:
    """Client data in memory; sampler, batches, FedAvg and optimisers are FedJAX's."""
    args = contract.arguments()
    work = WORKLOADS[args.workload]
    if work.needs_file:
        contract.refuse("it has no FedMABA, and the networks are not written in Haiku")
    x, y = make_data(work)
    clients = {str(k).encode(): {"x": x[k], "y": y[k]} for k in range(work.clients)}
    training, plain = network(work, train=True), network(work, train=False)

    def mean_loss(params: dict, batch: dict, rng: jax.Array, net: hk.Transformed) -> jax.Array:
        return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], net.apply(params, rng, batch)).mean()

    gradient = jax.grad(lambda params, batch, rng: mean_loss(params, batch, rng, training))
    evaluate = jax.jit(lambda params, batch: mean_loss(params, batch, None, plain))
    algorithm = fed_avg.federated_averaging(
        gradient,
        fedjax.optimizers.sgd(work.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs, drop_remainder=True),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(
        fedjax.InMemoryFederatedData(clients), num_clients=work.cohort, seed=args.seed
    )
    state = algorithm.init(start(work))
    parts = max(1, PROBED * work.examples // EVALUATED_AT_ONCE)
    probe = [np.array_split(a[:PROBED].reshape(-1, *a.shape[2:]), parts) for a in (x, y)]

    def loss() -> float:
        return float(np.mean([evaluate(state.params, {"x": a, "y": b}) for a, b in zip(*probe)]))

    def one_round() -> None:
        nonlocal state
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)

    contract.play(args, one_round, loss, ("fedjax", "dm-haiku", "jax", "jaxlib", "numpy"))


if __name__ == "__main__":
    with fedjax.for_each_client_backend("jit"):
        main()
