"""Runs with the examples on the device and off it, compiled as users' runs are: prints what differs in a bit. For a
process of its own, without ``$XLA_FLAGS``."""

import jax
import numpy as np
import optax
from toy import CLASSES, linear

import fedjax_fair as ff
from fedjax_fair.engine import ahead

SIZES = (5, 10, 7, 6, 8, 11)  # one of each for validation and for the test
SGD = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=4)
LIARS = ff.faults.some(6, 0.4)
KNOWN = {
    "coefficients before training": {"aggregator": ff.fedavg(), "selector": ff.size_proportional(2)},
    "received losses, own models": {
        "aggregator": ff.ditto(aggregator=ff.fedmaba()),
        "selector": ff.uniform(3),
        "evaluate": ("test", "train", "test@personal"),
    },
}
UNKNOWN = {
    "probes, validation": {"aggregator": ff.pg_ffl(), "selector": ff.pow_d(2, 4)},
    "feedback, absence, faults, a second look": {
        "aggregator": ff.fedmdfg(),
        "selector": ff.ucb_cs(2),
        "available": ff.availability.bernoulli(0.8),
        "faults": [ff.faults.inflate_loss(LIARS), ff.faults.not_finite(LIARS)],
    },
}


def federations(dtype=np.float32) -> list[ff.FederatedData]:
    """The same examples, on the device and off it."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(6), SIZES)
    x, y = rng.normal(size=(len(owner), 4)).astype(dtype), rng.integers(0, CLASSES, len(owner))
    split = (0.8, 0.1, 0.1)
    return [ff.FederatedData.from_arrays(x, y, client_id=owner, split=split, store=s) for s in ("device", "host")]


def raw(tree):
    def plain(leaf):
        return jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf

    return [np.asarray(plain(leaf)) for leaf in jax.tree.leaves(tree)]


def same(one, other) -> bool:
    pairs = zip(raw(one), raw(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def main() -> None:
    ahead.BYTES = 1000  # several stretches of rounds between evaluations
    for name, settings in (KNOWN | UNKNOWN).items():
        sims = [ff.simulation(linear, data, trainer=SGD, **settings) for data in federations()]
        if (sims[1].coming is not None, sims[0].coming) != (name in KNOWN, None):
            print(name, "are read otherwise than is written here")
        if not same(*(ff.run(sim, 0, rounds=8, eval_every=4) for sim in sims)):
            print(name)


if __name__ == "__main__":
    main()
