"""The objective of ``ff.local_sgd`` holds wherever it is called, also inside a trainer of the user's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy

import fedjax_fair as ff

pytestmark = pytest.mark.usefixtures("quick_to_compile")
TILTED = ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=3, objective=ff.tilted(3.0))


def method(objective=None):
    """Clients that train with the trainer they are given, called by a function of one's own."""

    def local(trainer):
        def train(loss, params, client, key, round):
            trained, trace = trainer(loss, params, client, key, round)
            return trained, trace, client.memory

        return train

    return ff.Method(ff.fedavg(), local=local, objective=objective, memory=ff.Memory(init=lambda params: ()))


def function(trainer):
    return lambda loss, params, client, key, round: trainer(loss, params, client, key, round)


CASES = {
    "fedavg": (
        ff.fedavg(),
        lambda trainer: {"aggregator": method(), "trainer": trainer},
        lambda trainer: {"trainer": function(trainer)},
    ),
    "a proximal term beside it": (
        ff.fedprox(mu=0.5),
        lambda trainer: {"aggregator": ff.fedprox(mu=0.5), "trainer": function(trainer)},
        lambda trainer: {
            "aggregator": method(lambda base: ff.proximal(0.5, base=base)),
            "trainer": trainer,
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_objective_is_what_is_trained(data, case):
    """By a trainer called inside a method, and inside a function."""
    plain, *made = CASES[case]
    wanted, _ = toy.play(toy.simulation(data, plain, trainer=TILTED), rounds=2)
    other, _ = toy.play(toy.simulation(data, plain, trainer=TILTED._replace(objective=ff.erm)), rounds=2)
    for inside in made:
        mine, _ = toy.play(toy.simulation(data, **inside(TILTED)), rounds=2)
        toy.close(mine.params, wanted.params, rtol=1e-5, atol=1e-6)
        gap = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), mine.params, other.params)
        assert np.max(jax.tree.leaves(gap)) > 1e-3
