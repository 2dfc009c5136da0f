"""The length of a mixture of vectors, from their inner products alone."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedjax_fair.numerics.min_norm import squared_length


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_length_is_that_of_the_sum_unless_rounding_alone_made_it(size):
    """Eight times a vector less eight times the same one is 0, whatever float32 makes of their squares."""
    rng = np.random.default_rng(0)
    one, other = (size * rng.normal(size=5).astype(np.float32) for _ in range(2))
    for coefs in ([0.3, 0.7], [8.0, -7.9]):
        rows = np.stack([one, other])
        wanted = np.square(np.float64(coefs) @ np.float64(rows)).sum()
        assert_allclose(squared_length(jnp.array(coefs), jnp.asarray(rows @ rows.T)), wanted, rtol=1e-4)
    rounded = (one @ one) * np.float32([[1 + 3e-7, 1], [1, 1]])  # of one vector twice
    assert squared_length(jnp.array([8.0, -8.0]), jnp.asarray(rounded)) == 0
