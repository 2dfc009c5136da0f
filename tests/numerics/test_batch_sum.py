"""Sums half by half: values and derivatives are a plain sum's, and a CPU's program has no windows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy import close, optimized

import fedjax_fair as ff
from fedjax_fair.numerics.batch_sum import LARGEST, WINDOW, repeated, total

ROWS = [1, WINDOW, WINDOW + 1, 50, 63, 65, 100, 127, LARGEST, LARGEST + 1]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_the_total_and_its_derivatives_are_a_sums(monkeypatch, backend, rows):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    with jax.enable_x64(True):
        values, moved = np.random.default_rng(rows).normal(size=(2, rows))
        halved = "pad" in str(jax.make_jaxpr(lambda v: total(v))(values))
        assert halved == (backend == "cpu" and WINDOW < rows <= LARGEST)
        made, back = jax.vjp(total, values)
        close(made, values.sum(), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(back(2.0)[0], np.full(rows, 2.0))
        close(jax.jvp(total, (values,), (moved,))[1], moved.sum(), rtol=1e-12, atol=1e-12)
        side_by_side = jax.vmap(total)(jnp.stack([values, moved]))
        close(side_by_side, [values.sum(), moved.sum()], rtol=1e-12, atol=1e-12)


def test_half_precision_is_summed_in_one_go():
    """Every half would round: 1 + 1/256 is 1 in bfloat16."""
    values = jnp.ones(256, jnp.bfloat16).at[1:].set(1 / 256)
    assert total(values) == values.sum() == 2


@pytest.mark.parametrize("rows", ROWS)
def test_a_repeated_row_is_itself_everywhere(rows):
    np.testing.assert_array_equal(repeated(jnp.arange(3), rows), np.tile(np.arange(3), (rows, 1)))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is a CPU's compiler that sums in windows")
def test_the_mean_loss_of_a_batch_has_no_windows_where_a_plain_mean_has_them():
    def has_windows(mean):
        with optimized(True):
            return " reduce-window(" in jax.jit(mean).lower(jnp.zeros(50)).compile().as_text()

    assert has_windows(jnp.mean)
    assert not has_windows(lambda losses: ff.erm(losses, jnp.ones(50, bool), None, None))
