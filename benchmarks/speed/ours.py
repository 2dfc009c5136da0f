"""This project's engine on one workload, through its public API; run like an opponent."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.speed import contract, workloads  # isort: skip  (the clock starts here)

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import unflatten_dict

import fedjax_fair as ff
from benchmarks.speed.flax_networks import network
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


def model(work: workloads.Workload, letters: int = workloads.LETTERS) -> ff.models.Model:
    """A stock model where one fits, that it may be as fast as it is for users; a network as it is written."""
    if work.network:
        return ff.models.as_model(network(work.network, letters))
    stock = {
        workloads.SOFTMAX: ff.models.logistic_regression(),
        workloads.MLP: ff.models.mlp((200,)),
        workloads.CNN5: ff.models.cnn(),
    }
    return stock.get(work.model) or ff.models.as_model(Net(work.model))


def federation(x: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> ff.FederatedData:
    """Clients' arrays [n, ...] as a federation that trains on all of them.

    ``ff.run`` evaluates at its end, and the contract wants no evaluation: the test split is a single example.
    """
    owner = np.repeat(np.arange(len(y)), [len(labels) for labels in y])
    data = ff.FederatedData.from_arrays(
        np.concatenate(x), np.concatenate(y), client_id=owner, split=(1, 0, 0), normalizer=None
    )
    one = data.train._replace(
        rows=jnp.zeros((1,), jnp.int32),
        start=jnp.zeros_like(data.train.start),
        size=jnp.zeros_like(data.train.size).at[0].set(1),
        owner=jnp.zeros((1,), jnp.int32),
    )
    return data._replace(test=one)


def start_from(params: dict, work: workloads.Workload, path: Path | None = None) -> dict:
    """The workload's initial parameters in the place of ``params``: flax numbers the layers of a kind."""
    if work.network:
        return unflatten_dict(jax.tree.map(jnp.array, workloads.given(path)), sep="/")
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
    """The workload by its rule; ``settings`` override those of ``ff.simulation``, ``model`` among them."""
    rules = {"fedavg": ff.fedavg("uniform"), "fedmaba": ff.fedmaba()}
    defaults = {
        "aggregator": rules[work.rule],
        "selector": ff.uniform(work.cohort),
        "trainer": ff.local_sgd(optax.sgd(work.lr), epochs=work.epochs, batch_size=work.batch),
    }
    if work.is_text:
        defaults |= {"loss": loss_of_text, "metric": accuracy_of_text}
    net = settings.pop("model", None) or model(work, letters_of(work, data))
    return ff.simulation(net, data, **{**defaults, **settings})


def letters_of(work: workloads.Workload, data: ff.FederatedData) -> int:
    """The letters of a text's alphabet."""
    if work.even or not work.is_text:
        return workloads.LETTERS
    x, y = data.take(data.train.rows)
    return int(max(x.max(), y.max())) + 1


def loss_of_text(logits: jax.Array, y: jax.Array) -> jax.Array:
    """Mean over the letters of each example."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(-1)


def accuracy_of_text(logits: jax.Array, y: jax.Array) -> jax.Array:
    """The share of an example's letters that are right."""
    return (logits.argmax(-1) == y).mean(-1)


def probe_loss(work: workloads.Workload, data: ff.FederatedData) -> Callable[[dict], float]:
    """``params -> mean of the losses`` of the first clients, where the parameters are."""
    net = model(work, letters_of(work, data))
    loss = loss_of_text if work.is_text else ff.losses.softmax_cross_entropy
    size = np.asarray(data.train.size)[: workloads.PROBED]
    rows = data.train.rows[: size.sum()]
    weights = jnp.array(np.repeat(1 / size / len(size), size), jnp.float32)
    spare = -len(rows) % work.batch
    batches = [jnp.pad(array, (0, spare)).reshape(-1, work.batch) for array in (rows, weights)]

    @jax.jit
    def mean(params: dict, data: ff.FederatedData) -> jax.Array:
        def some(batch: tuple[jax.Array, jax.Array]) -> jax.Array:
            x, y = data.take(batch[0])
            return loss(net.apply(params, x, None), y) @ batch[1]

        return jax.lax.map(some, batches).sum()

    return lambda params: float(mean(params, data))


def main(split: bool = False) -> None:
    """Warm-up calls, then timed calls of the same length: the second and later ones compile nothing.

    ``split`` makes every core a device of its own, which trains clients of its own.
    """
    args = contract.arguments()
    if split:
        jax.config.update("jax_num_cpu_devices", args.threads)
    work = workloads.WORKLOADS[args.workload]
    work = workloads.quick(work) if args.quick else work
    sim = simulate(work, federation(*workloads.load(work, args.data)), devices=args.threads if split else 1)
    loss = probe_loss(work, sim.data)
    state = sim.init(jax.random.key(args.seed))
    params = start_from(state.params, work, args.data)
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
    seconds, busy = [], []
    for _ in range(args.rounds // args.call):
        begin, begun = time.perf_counter(), time.process_time()
        state = call(state)
        seconds.append((time.perf_counter() - begin) / args.call)
        busy.append((time.process_time() - begun) / args.call)
    contract.emit(
        setup_s=ready - contract.START,
        warmup_s=warm - ready,
        round_s=seconds,
        cpu_s=busy,
        loss_before=before,
        loss_after=loss(state.params),
        versions=contract.versions("fedjax-fair", *PACKAGES),
    )


if __name__ == "__main__":
    main()
