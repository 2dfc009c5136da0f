"""Runs cut into chunks, compiled as users' runs are (with the tests' quick options, XLA rounds a loop of one turn
otherwise): prints whose results differ in a bit. For a process of its own, without ``$XLA_FLAGS``."""

import jax
import numpy as np
import optax
from toy import federation, linear

import fedjax_fair as ff

MOMENTUM = optax.sgd(0.5, momentum=0.9)
CASES = [  # the rounds of the first leave a rest; one turn of a loop or two: the others are about blocks
    (ff.fedmaba(), optax.adam(0.01), None, 7, (1, 2, 3, 100)),
    (ff.fedmaba(), MOMENTUM, 2, 4, (1,)),
    (ff.fedmgda_plus(), MOMENTUM, 1, 4, (1,)),
]


def raw(tree):
    keyless = jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf,
        tree,
    )
    return [np.asarray(leaf) for leaf in jax.tree.leaves(keyless)]


def main() -> None:
    data = federation()
    for number, (rule, server, block, rounds, cuts) in enumerate(CASES):
        sim = ff.simulation(
            linear,
            data,
            aggregator=rule,
            trainer=ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=3),
            selector=ff.uniform(3),
            server_optimizer=server,
            client_block=block,
        )
        whole = raw(ff.run(sim, 0, rounds=rounds, eval_every=2))
        for chunk in cuts:
            part = raw(ff.run(sim, 0, rounds=rounds, eval_every=2, chunk=chunk))
            if not all(
                np.array_equal(a, b, equal_nan=True) and a.dtype == b.dtype
                for a, b in zip(whole, part, strict=True)
            ):
                print(f"case {number}, chunks of {chunk}")


main()
