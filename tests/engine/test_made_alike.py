"""What was made alike: the same code over the same numbers, however often it was made."""

import functools

import jax
import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair.engine.made_alike import made_alike


def closing_over(value):
    return lambda x: x + value


def of_a_file(rate):
    """A function of a module that holds a constant."""
    module = {"RATE": rate}
    exec("def outer():\n    return lambda x: x * RATE", module)
    return module["outer"]()


def calling_itself():
    def down(n):
        return n and down(n - 1)

    return down


ALIKE = {
    "numbers": lambda: 0.1,
    "arrays": lambda: np.array([1.0, np.nan]),
    "keys": lambda: jax.random.key(3),
    "closures": lambda: closing_over(2),
    "closures over arrays": lambda: closing_over(np.arange(3)),
    "partials": lambda: functools.partial(closing_over, value=3),
    "jitted": lambda: jax.jit(closing_over(3)),
    "recursive": calling_itself,
    "files": lambda: of_a_file(0.1),
    "optimisers": lambda: optax.adam(0.1),
    "trainers": lambda: ff.local_sgd(optax.sgd(0.1), batch_size=5),
    "selectors": lambda: ff.pow_d(3, d=5),
    "models": lambda: ff.models.mlp((8,)),
    "mappings": lambda: {"a": [1, closing_over(2)]},
}


@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE)
def test_two_calls_of_one_factory_are_alike(make):
    assert made_alike(make(), make())


DIFFERENT = {
    "numbers": (0.1, 0.2),
    "types": (1, 1.0),
    "arrays": (np.arange(3), np.arange(4)),
    "dtypes": (np.zeros(3), np.zeros(3, np.float32)),
    "closures": (closing_over(2), closing_over(3)),
    "closures over arrays": (closing_over(np.arange(3)), closing_over(np.ones(3))),
    "code": (lambda x: x + 1, lambda x: x + 2),
    "constants of two files": (of_a_file(0.1), of_a_file(0.2)),
    "rates": (optax.sgd(0.1), optax.sgd(0.2)),
    "settings": (ff.pow_d(3, d=5), ff.pow_d(3, d=6)),
    "batches": (ff.local_sgd(optax.sgd(0.1), batch_size=5), ff.local_sgd(optax.sgd(0.1), batch_size=6)),
    "keys": (jax.random.key(3), jax.random.key(4)),
    "mappings": ({"a": 1}, {"b": 1}),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_in_a_number_is_not(pair):
    assert not made_alike(*pair)
