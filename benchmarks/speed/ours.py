"""This project's engine on one workload, through its public API; run like an opponent."""

import time

from benchmarks.speed import contract, workloads  # isort: skip  (the clock starts here)

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_fair as ff
from fedjax_fair.models import PatchConv, max_pool_2x2

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


class Net(nn.Module):
    """The model of a workload that is no stock model of the package."""

    operations: tuple[tuple, ...]

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        for name, *settings in self.operations:
            if name == "conv":
                side, width = settings
                x = PatchConv(width, (side, side), "VALID")(x)
            elif name == "dense":
                x = nn.Dense(settings[0])(x)
            elif name == "relu":
                x = nn.relu(x)
            elif name == "pool":
                x = max_pool_2x2(x)
            elif name == "flatten":
                x = x.reshape(x.shape[0], -1)
            else:
                x = nn.Dropout(settings[0], deterministic=not train)(x)
        return x


def model(work: workloads.Workload) -> ff.models.Model:
    """A stock model where one fits, that it may be as fast as it is for users."""
    stock = {
        workloads.SOFTMAX: ff.models.logistic_regression(),
        workloads.MLP: ff.models.mlp((200,)),
        workloads.CNN5: ff.models.cnn(),
    }
    return stock.get(work.model) or ff.models.as_model(Net(work.model))


def federation(x: np.ndarray, y: np.ndarray) -> ff.FederatedData:
    """Clients' arrays [N, n, ...] as a federation that trains on all of them.

    ``ff.run`` evaluates at its end, and the contract wants no evaluation: the test split is a single example.
    """
    owner = np.repeat(np.arange(x.shape[0]), x.shape[1])
    data = ff.FederatedData.from_arrays(
        x.reshape(-1, *x.shape[2:]), y.reshape(-1), client_id=owner, split=(1, 0, 0), normalizer=None
    )
    one = data.train._replace(
        rows=jnp.zeros((1,), jnp.int32),
        start=jnp.zeros_like(data.train.start),
        size=jnp.zeros_like(data.train.size).at[0].set(1),
        owner=jnp.zeros((1,), jnp.int32),
    )
    return data._replace(test=one)


def start_from(params: dict, work: workloads.Workload) -> dict:
    """The workload's initial parameters in the place of ``params``: flax numbers the layers of a kind."""
    counts = {"conv": 0, "dense": 0}
    names = {"conv": sorted(n for n in params if "Conv" in n), "dense": sorted(n for n in params if "Dense" in n)}
    given = {}
    for layer, (kernel, bias) in zip(workloads.layers(work), workloads.initial(work)):
        name = names[layer.kind][counts[layer.kind]]
        counts[layer.kind] += 1
        given[name] = {"kernel": jnp.array(kernel), "bias": jnp.array(bias)}
    assert jax.tree.map(jnp.shape, given) == jax.tree.map(jnp.shape, params)
    return given


def simulate(work: workloads.Workload, data: ff.FederatedData, **settings: object) -> ff.Simulation:
    """FedAvg on the workload; ``settings`` override those of ``ff.simulation``."""
    defaults = {
        "aggregator": ff.fedavg("uniform"),
        "selector": ff.uniform(work.cohort),
        "trainer": ff.local_sgd(optax.sgd(work.lr), epochs=work.epochs, batch_size=work.batch),
    }
    return ff.simulation(model(work), data, **{**defaults, **settings})


def probe_loss(work: workloads.Workload, data: ff.FederatedData) -> object:
    """``params -> loss`` on the data of the first clients, where the parameters are."""
    net, count = model(work), workloads.PROBED * work.examples

    @jax.jit
    def mean(params: dict, data: ff.FederatedData) -> jax.Array:
        def some(rows: jax.Array) -> jax.Array:
            x, y = data.take(rows)
            return ff.losses.softmax_cross_entropy(net.apply(params, x, None), y)

        return jax.lax.map(some, data.train.rows[:count].reshape(-1, work.batch)).mean()

    return lambda params: float(mean(params, data))


def main(split: bool = False) -> None:
    """Warm-up calls, then timed calls of the same length: the second and later ones compile nothing.

    ``split`` makes every core a device of its own, which trains clients of its own.
    """
    args = contract.arguments()
    if split:
        jax.config.update("jax_num_cpu_devices", args.threads)
    work = workloads.WORKLOADS[args.workload]
    sim = simulate(work, federation(*workloads.make_data(work)), devices=args.threads if split else 1)
    loss = probe_loss(work, sim.data)
    state = sim.init(jax.random.key(args.seed))
    params = start_from(state.params, work)
    if split:  # the given parameters are on one device
        params = jax.tree.map(lambda new, old: jax.device_put(new, old.sharding), params, state.params)
    state = state._replace(params=params)
    before = loss(state.params)
    jax.block_until_ready((state, sim.data))

    def call(state: ff.SimState) -> ff.SimState:
        state, _ = ff.run(sim, state=state, rounds=args.call, eval_every=args.call, progress=False)
        return jax.block_until_ready(state)

    ready = time.perf_counter()
    for _ in range(args.warmup // args.call):
        state = call(state)
    warm = time.perf_counter()
    seconds = []
    for _ in range(args.rounds // args.call):
        begin = time.perf_counter()
        state = call(state)
        seconds.append((time.perf_counter() - begin) / args.call)
    contract.emit(
        setup_s=ready - contract.START,
        warmup_s=warm - ready,
        round_s=seconds,
        loss_before=before,
        loss_after=loss(state.params),
        versions=contract.versions("fedjax-fair", *PACKAGES),
    )


if __name__ == "__main__":
    main()
