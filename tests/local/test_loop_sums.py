"""Sums that a loop's turns add to, taken after the loop: the same gradients, of fewer and larger products."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import close

import fedjax_fair as ff
from fedjax_fair.local import loop_sums
from fedjax_fair.local.loop_sums import FEW, after_loops

T, B, WIDTH = 7, 3, 5
CELLS = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell, "plain lstm": nn.LSTMCell, "rnn": nn.SimpleCell}


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    """What only a CPU does, wherever the tests run."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")


def draw(*shape, seed=0):
    return jnp.array(np.random.default_rng(seed).normal(size=shape))


def loops(function, *args):
    """How many carries each loop of a function's program has."""
    return [
        step.params["num_carry"]
        for step in jax.make_jaxpr(function)(*args).jaxpr.eqns
        if step.primitive.name == "scan"
    ]


def gradient_of(net, x):
    def loss(params):
        return jnp.square(net.apply(params, x)).sum(), None

    return jax.value_and_grad(loss, has_aux=True)


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_networks_have_the_same_gradients(cell, reverse):
    with jax.enable_x64(True):
        net = nn.RNN(CELLS[cell](WIDTH, param_dtype=jnp.float64), reverse=reverse)
        x = draw(B, T, 4)
        params = net.init(jax.random.key(0), x)
        plain = gradient_of(net, x)
        expected = plain(params)
        for function in (after_loops(plain), jax.jit(after_loops(plain))):
            close(function(params), expected, rtol=1e-10, atol=1e-12)
        several = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
        close(jax.vmap(after_loops(plain))(several), jax.vmap(plain)(several), rtol=1e-10, atol=1e-12)
        (_, before), (_, after) = loops(plain, params), loops(after_loops(plain), params)
        states = 2 if "lstm" in cell else 1
        assert (before, after) == (states + len(jax.tree.leaves(params)), states)


def test_gradients_in_half_precision_have_their_type():
    net, x = nn.RNN(nn.GRUCell(WIDTH)), draw(B, T, 4)
    params = net.init(jax.random.key(0), x)
    params, x = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, x))
    plain = gradient_of(net, x)
    found, expected = after_loops(plain)(params), plain(params)
    assert [leaf.dtype for leaf in jax.tree.leaves(found)] == [leaf.dtype for leaf in jax.tree.leaves(expected)]
    close(found, expected, rtol=0.1, atol=0.1)


def kept(turn, start, xs):
    """The carries of a loop before and after, whose results stay the same."""

    def plain(start, xs):
        return jax.lax.scan(turn, start, xs)

    close(after_loops(plain)(start, xs), plain(start, xs), rtol=1e-5, atol=1e-5)
    return loops(plain, start, xs) + loops(after_loops(plain), start, xs)


def test_a_sum_that_is_read_in_the_loop_stays_in_it():
    total = jnp.zeros(WIDTH)
    xs = draw(T, B, WIDTH)
    assert kept(lambda c, x: (c + x.sum(0), None), total, xs) == [1, 0]
    assert kept(lambda c, x: (c + x.sum(0), c), total, xs) == [1, 1]
    assert kept(lambda c, x: (c + x.sum(0) * c, None), total, xs) == [1, 1]
    assert kept(lambda c, x: (c + x.max(0), None), total, xs) == [1, 1]

    def then_read(c, x):
        c = c + x.sum(0)
        return c, c

    assert kept(then_read, total, xs) == [1, 1]


def test_a_sum_of_what_never_changes_stays_in_the_loop():
    row, xs = draw(B, WIDTH), draw(T, B, WIDTH)
    assert kept(lambda c, x: (c + x.T @ row, None), jnp.zeros((WIDTH, WIDTH)), xs) == [1, 1]


def test_products_of_many_rows_stay_in_the_loop():
    for rows, left in ((FEW, 0), (FEW + 1, 1)):
        xs = draw(2, rows, FEW + 1)
        assert kept(lambda c, x: (c + (x.T @ jnp.sin(x)).T, None), jnp.ones((FEW + 1, FEW + 1)), xs) == [1, left]


def test_a_loop_begins_with_what_it_is_given():
    xs = draw(T, B, WIDTH)
    assert kept(lambda c, x: ((c[0] + x.sum(0), c[1] * 2), c[1]), (draw(WIDTH), draw(2)), xs) == [2, 1]


def test_other_backends_keep_the_function(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert after_loops(kept) is kept


class Reader(nn.Module):
    """A GRU that tells the first letter of a word."""

    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(4)(nn.RNN(nn.GRUCell(8))(nn.Embed(4, 6)(x))[:, -1])


def test_clients_train_the_same_models(monkeypatch):
    words = np.random.default_rng(0).integers(0, 4, (60, 5))
    data = ff.FederatedData.from_arrays(words, words[:, 0], client_id=np.arange(60) % 3, normalizer=None)
    trainer = ff.local_sgd(optax.sgd(0.3), epochs=2, batch_size=5)

    def trained():
        sim = ff.simulation(Reader(), data, aggregator=ff.fedmaba(), trainer=trainer)
        return ff.run(sim, 0, 3, eval_every=3, progress=False)

    found = trained()
    monkeypatch.setattr(loop_sums, "_found", lambda step: {})
    expected = trained()
    close(found[0].params, expected[0].params, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "product",
    [
        lambda x, y: jnp.einsum("abi,abj->aij", x, y),
        lambda x, y: jnp.einsum("abi,abj->ij", x, y),
        lambda x, y: jnp.einsum("abi,acj->bicj", x, y),
    ],
    ids=["with batch axes", "over two axes", "over one of three"],
)
def test_products_of_any_axes(product):
    xs = draw(T, 2, B, WIDTH), draw(T, 2, B, WIDTH, seed=1)
    start = jnp.zeros_like(product(xs[0][0], xs[1][0]))
    for turn in (lambda c, x: (c + product(*x), None), lambda c, x: (c + product(jnp.sin(x[0]), x[1]), None)):
        kept(turn, start, xs)
    assert kept(lambda c, x: (c + product(*x), None), start, xs) == [1, 0]


def test_loops_in_jitted_functions_are_found():
    xs = draw(T, B, WIDTH)

    @jax.jit
    def inner(xs):
        return jax.lax.scan(lambda c, x: (c + x.sum(0), None), jnp.zeros(WIDTH), xs)[0]

    close(after_loops(inner)(xs), xs.sum((0, 1)), rtol=1e-5, atol=1e-5)
    assert loops(after_loops(inner), xs) == [0]


def test_rows_that_are_larger_than_their_sum_are_not_kept():
    """Else a loop that is there to save memory would take it all the same."""
    xs = draw(T, B, WIDTH)
    assert kept(lambda c, x: (c + jnp.sin(x).sum(0), None), jnp.zeros(WIDTH), xs) == [1, 1]


def test_a_bias_goes_with_its_kernel():
    xs = draw(T, B, WIDTH)

    def turn(c, x):
        rows = jnp.sin(x)
        return (c[0] + x.T @ rows, c[1] + rows.sum(0)), None

    assert kept(turn, (jnp.zeros((WIDTH, WIDTH)), jnp.zeros(WIDTH)), xs) == [2, 0]


def test_functions_that_look_alike_are_two():
    """The text of a jitted function does not tell what it closes over."""
    scaled = [jax.jit(lambda x, k=k: jnp.sin(x) * k[None]) for k in (draw(WIDTH), draw(WIDTH, seed=1))]

    def turn(c, x):
        return tuple(total + x.T @ function(x) for total, function in zip(c, scaled)), None

    kept(turn, (jnp.zeros((WIDTH, WIDTH)), jnp.zeros((WIDTH, WIDTH))), draw(T, B, WIDTH))


def test_what_two_sums_have_in_common_is_kept_once():
    """An LSTM puts its gates' gradients together twice, for two kernels."""

    def plain(start, xs):
        def turn(carry, x):
            sine = jnp.sin(x)
            both = [jax.lax.concatenate([sine, x], 1) for _ in range(2)]
            jax.debug.callback(lambda _: None, x)  # an operation without outputs
            return (
                carry[0] + both[0].sum(0),
                carry[1] + jax.lax.dot_general(x, both[1], (([0], [0]), ([], []))).T,
            ), None

        return jax.lax.scan(turn, start, xs)[0]

    xs, start = draw(T, B, WIDTH), (jnp.zeros(2 * WIDTH), jnp.zeros((2 * WIDTH, WIDTH)))
    close(after_loops(plain)(start, xs), plain(start, xs), rtol=1e-5, atol=1e-5)
    (loop,) = (s for s in jax.make_jaxpr(after_loops(plain))(start, xs).jaxpr.eqns if s.primitive.name == "scan")
    assert [var.aval.shape for var in loop.outvars] == [(T, B, 2 * WIDTH)]
