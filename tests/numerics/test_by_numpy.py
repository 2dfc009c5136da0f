"""Programs by NumPy are the same programs by JAX."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fair.numerics import by_numpy
from fedjax_fair.numerics.by_numpy import by_jax, evaluate

pytestmark = pytest.mark.usefixtures("quick_to_compile")
RNG = np.random.default_rng(0)


class Images(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(5, (3, 2), strides=(2, 1))(x))
        x = nn.gelu(nn.Conv(4, (2, 2), padding="VALID")(nn.max_pool(x, (3, 2), (2, 2), "SAME")))
        return nn.Dense(3)(nn.LayerNorm()(nn.avg_pool(x, (2, 2)).reshape(x.shape[0], -1)))


class Words(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.GRUCell(6))(nn.Embed(9, 4)(x))
        return nn.Dense(2)(nn.MultiHeadDotProductAttention(2)(x).mean(1))


class Odd(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(6)(jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, jnp.cumsum(x, 1)))
        return jnp.stack([jnp.sort(x, 1), x.argmax(1, keepdims=True) // 2 + jax.nn.softmax(x)], 1)


class Pooled(nn.Module):
    """Of whole numbers, which know no infinity."""

    @nn.compact
    def __call__(self, x):
        pooled = nn.max_pool(x, (2, 2), (2, 2), padding="SAME")
        return nn.Dense(3)(pooled.reshape(len(x), -1).astype(jnp.float32))


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (Images(), RNG.normal(size=(3, 11, 13, 2)).astype(np.float32)),
        (Words(), RNG.integers(0, 9, (3, 5)).astype(np.int32)),
        (Pooled(), RNG.integers(0, 9, (3, 5, 5, 1)).astype(np.int32)),
        (Odd(), RNG.normal(size=(3, 4)).astype(np.float32)),
        (nn.Dense(3, dtype=jnp.bfloat16), RNG.normal(size=(3, 4)).astype(np.float32)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_program_by_numpy_is_the_program_by_jax(module, x):
    params = module.init(jax.random.key(0), x)
    program = jax.make_jaxpr(lambda p, x: (module.apply(p, x), jax.grad(lambda p: module.apply(p, x).sum())(p)))(
        params, x
    )
    inputs = [*map(np.asarray, jax.tree.leaves(params)), x]
    half = getattr(module, "dtype", None) == jnp.bfloat16
    for ours, theirs in zip(evaluate(program, *inputs), by_jax(program, *inputs)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=3e-2 if half else 1e-5)


def test_settings_that_a_later_jax_may_have_are_left_to_it(monkeypatch):
    """As ``num_consts``, which 0.11 took from ``scan``."""
    known = by_numpy._scan
    monkeypatch.setattr(
        by_numpy, "_scan", lambda values, **settings: known(values, jaxpr=0, length=2, reverse=False)
    )
    program = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, row: (c + row, c), 0.0, x))(jnp.arange(3.0))
    for ours, theirs in zip(evaluate(program, np.arange(3.0)), by_jax(program, np.arange(3.0))):
        np.testing.assert_allclose(ours, theirs)
