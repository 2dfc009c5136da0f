"""A client's copy of its own small data: only where it is read again, and then with the same result."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy

import fedjax_fair as ff
from fedjax_fair import copied, local
from fedjax_fair.types import Client


def a_client(rows=500, features=60):
    """What the compiler knows of one client of a larger federation."""
    store = jnp.zeros((3 * rows, features)), jnp.zeros((3 * rows,), jnp.int32)
    return Client(jnp.int32(1), rows + jnp.arange(rows), rows, lambda at: jax.tree.map(lambda a: a[at], store))


@pytest.mark.parametrize(
    ("client", "reads", "worth"),
    [
        (a_client(), 1000, True),
        (a_client(), 999, False),  # half of it, or all of it once
        (a_client(features=65), 1500, False),  # 500 * (65 + 1) * 4 bytes
        (a_client(rows=504, features=64), 10_000, True),
    ],
)
def test_what_is_read_twice_and_small_is_copied(client, reads, worth):
    assert copied.worth_copying(client, reads) == worth


def test_nothing_is_copied_on_an_accelerator(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not copied.worth_copying(a_client(), 10_000)


def test_row_i_of_the_copy_is_the_clients_ith_example():
    store = jnp.arange(40.0)
    client = Client(jnp.int32(0), jnp.array([31, 7, 7, 19]), 3, lambda at: ({"x": store[at]}, -store[at]))
    own = copied.copied(client)
    np.testing.assert_array_equal(own.rows, [0, 1, 2, 3])
    assert own.size == 3
    x, y = own.take(jnp.array([[2, 0], [3, 3]]))
    np.testing.assert_array_equal(x["x"], [[7, 31], [19, 19]])
    np.testing.assert_array_equal(y, [[-7, -31], [-19, -19]])


@pytest.mark.parametrize(
    "settings",
    [{"epochs": 3, "batch_size": 4}, {"steps": 9, "batch_size": 5}, {"epochs": 2, "batch_size": None}],
    ids=str,
)
def test_training_on_copies_is_the_same_to_rounding(settings, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)
    sizes = (12,) * 5 if settings.get("epochs") == 3 else (5, 20, 12, 3, 20)  # in epochs they must be equal
    data = ff.FederatedData.from_arrays(x, y, client_id=np.repeat(range(5), sizes), split=(1, 0, 0))
    made = []

    def trained(worth):
        monkeypatch.setattr(local, "worth_copying", worth)
        monkeypatch.setattr(local, "copied", lambda client: made.append(worth) or copied.copied(client))
        trainer = ff.local_sgd(optax.sgd(0.3, 0.9), **settings)
        sim = ff.simulation(toy.linear, data, aggregator=ff.fedavg(), trainer=trainer, evaluate=("train",))
        return ff.run(sim, 0, 3)

    with_copies, without = trained(copied.worth_copying), trained(lambda client, examples: False)
    assert made  # by the rule's own word, for these settings
    assert set(made) == {copied.worth_copying}
    toy.close(with_copies[0].params, without[0].params, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(with_copies[1].loss, without[1].loss, rtol=1e-5)
