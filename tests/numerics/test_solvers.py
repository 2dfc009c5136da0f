"""The small solvers against independent oracles: root finding, linear programming, SciPy's optimisers."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq, linprog, minimize

from fedjax_fair.numerics import simplex_qp, solvers
from fedjax_fair.numerics.min_norm import min_norm

M = 6
ALL = jnp.ones(M, bool)
quick = settings(deadline=None, max_examples=60, derandomize=True)
vectors = hnp.arrays(np.float64, M, elements=st.floats(-8, 8, width=32))
masks = hnp.arrays(bool, M).filter(np.any)

project_simplex = jax.jit(solvers.project_simplex)
project_box_simplex = jax.jit(solvers.project_box_simplex)
project_kl_ball = jax.jit(solvers.project_kl_ball)


@jax.jit
def project_kl_ball_as_on_a_gpu(*args):
    with mock.patch.object(jax, "default_backend", return_value="gpu"):
        return solvers.project_kl_ball(*args)


qp_simplex = jax.jit(simplex_qp.qp_simplex)


@pytest.fixture(scope="module", autouse=True)
def float64():
    """Exactness is tested in float64; the tests of float32 say so themselves."""
    with jax.enable_x64(True):
        yield


def projection_by_root_finding(y, radius=1.0):
    """max(y - theta, 0), the shift found by Brent's method instead of by sorting."""
    y = np.asarray(y, np.float64)
    low, high = y.min() - radius, y.max()
    theta = brentq(lambda theta: np.maximum(y - theta, 0).sum() - radius, low, high, xtol=1e-14, rtol=1e-15)
    return np.maximum(y - theta, 0)


def within(mask, values):
    """Values on the mask, zeros elsewhere."""
    full = np.zeros(mask.shape)
    full[mask] = values
    return full


# normalize, softmax, masked_mean


@quick
@given(vectors, masks)
def test_averages_look_only_where_they_should(y, where):
    garbage = jnp.where(where, y, jnp.nan)
    positive = np.abs(y) + 0.5
    exponentials = np.exp(y[where] - y[where].max())
    normalized = solvers.normalize(jnp.where(where, positive, jnp.nan), where)
    assert_allclose(normalized, within(where, positive[where] / positive[where].sum()))
    assert_allclose(solvers.softmax(garbage, where), within(where, exponentials / exponentials.sum()))
    assert_allclose(np.exp(solvers.log_normalize(garbage, where))[where].sum(), 1)
    assert_allclose(solvers.masked_mean(garbage, where), y[where].mean(), atol=1e-12)


def test_weights_without_mass_become_uniform():
    where = jnp.array([True, False, True])
    assert_array_equal(solvers.normalize(jnp.zeros(3), where), [0.5, 0, 0.5])


def test_softmax_of_huge_logits():
    assert_allclose(solvers.softmax(jnp.array([1e4, 1e4, -1e4]), jnp.ones(3, bool)), [0.5, 0.5, 0], rtol=1e-9)


def test_nobody_is_all_zeros():
    y, nobody = jnp.arange(1.0, M + 1), jnp.zeros(M, bool)
    assert solvers.masked_mean(y, nobody) == 0
    results = (
        solvers.normalize(y, nobody),
        solvers.softmax(y, nobody),
        solvers.uniform_over(nobody, y.dtype),
        project_simplex(y, nobody),
        project_box_simplex(y, y * 0, y, nobody),
        qp_simplex(jnp.eye(M), y, y, nobody),
    )
    for result in results:
        assert_array_equal(result, np.zeros(M))
    assert np.isfinite(project_kl_ball(y, 1.0, nobody)).all()


def test_scatter_writes_where_it_should_and_nowhere_else():
    table, ids = jnp.arange(5.0), jnp.array([3, 0, 0, 9], jnp.int32)
    where = jnp.array([True, True, False, False])
    assert_array_equal(solvers.scatter(table, ids, jnp.array([30.0, 10, 20, 40]), where), [10, 1, 2, 30, 4])
    assert_array_equal(solvers.scatter(table, ids, jnp.full(4, jnp.nan), where & False), table)


# The simplex


@quick
@given(vectors, masks, st.floats(0.03125, 8, width=32))
def test_project_simplex_against_root_finding(y, where, radius):
    mine = project_simplex(jnp.where(where, y, jnp.nan), where, radius)
    assert_allclose(mine, within(where, projection_by_root_finding(y[where], radius)), atol=1e-12)


@quick
@given(vectors, st.floats(-100, 100, width=32))
def test_project_simplex_is_idempotent_and_ignores_shifts(y, shift):
    once = project_simplex(y, ALL)
    assert_allclose(project_simplex(once, ALL), once, atol=1e-12)
    assert_allclose(project_simplex(y + shift, ALL), once, atol=1e-12)


@quick
@given(vectors, masks, st.floats(0.03125, 8, width=32), hnp.arrays(np.float64, M, elements=st.floats(0.01, 1)))
def test_project_simplex_at_a_pace_of_each_entrys_own(y, where, radius, pace):
    """p is the closest by sum (p - y)^2 / pace iff (y - p) / pace is one number where p > 0, and less elsewhere."""
    garbage = jnp.where(where, y, jnp.nan)
    p = project_simplex(garbage, where, radius, jnp.where(where, pace, 1))
    assert_array_equal(p[~where], 0)
    assert_allclose(p.sum(), radius, rtol=1e-12)
    assert (p >= 0).all()
    theta = ((y - p) / pace)[where]
    assert_allclose(theta[p[where] > 0], theta.max(), atol=1e-9)


def test_project_simplex_by_hand():
    """The case that an off-by-one in the threshold gets wrong, and the empty simplex."""
    assert_allclose(project_simplex(jnp.array([1.5, 0.3]), jnp.ones(2, bool)), [1, 0])
    assert_allclose(project_simplex(jnp.array([0.9, 0.3]), jnp.ones(2, bool)), [0.8, 0.2])
    assert_array_equal(project_simplex(jnp.array([0.9, 0.3]), jnp.ones(2, bool), 0.0), [0, 0])


@pytest.mark.parametrize("size", [4, 300])
def test_project_simplex_moves_with_its_point(size):
    """Forward: those above 0 share what is added to one of them."""
    y, one = jnp.zeros(size).at[:3].set(jnp.array([0.3, 0.9, 0.5])), jnp.zeros(size).at[0].set(1.0)
    y = y.at[3:].set(-1.0)
    _, moved = jax.jvp(lambda y: solvers.project_simplex(y, jnp.ones(size, bool)), (y,), (one,))
    assert_allclose(moved[:4], [2 / 3, -1 / 3, -1 / 3, 0], atol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_project_simplex_of_huge_float32(spread):
    y = (1e4 + spread * np.random.default_rng(0).uniform(0, 1, (20, 50))).astype(np.float32)
    mine = jax.vmap(lambda row: project_simplex(row, jnp.ones(50, bool)))(y)
    assert mine.dtype == jnp.float32
    assert_allclose(mine, [projection_by_root_finding(row) for row in y], atol=1e-5)
    assert_allclose(mine.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    ("y", "radius", "wanted"),
    [
        ([-0.3, -0.1, 0.0], 1e-7, [0, 0, 1e-7]),  # an excess of 1e-7 is not rounding where that is all there is
        ([0.0, -1e8, -1e9], 1.0, [1, 0, 0]),  # from the middle of these a step of 1 would round away
        ([0.0, 0.0, -1e12], 1e-6, [5e-7, 5e-7, 0]),
        ([0.0, -jnp.inf, -0.5], 1.0, [0.75, 0, 0.25]),
    ],
)
def test_project_simplex_of_tiny_radii_and_far_vectors(y, radius, wanted, dtype):
    p = project_simplex(jnp.array(y, dtype), jnp.ones(3, bool), jnp.asarray(radius, dtype))
    assert_allclose(p, wanted, rtol=4 * jnp.finfo(dtype).eps)


# The box and the simplex


def best_vertex(direction, low, high):
    """The largest value of a linear function on {low <= p <= high, sum p = 1}, by linear programming."""
    return -linprog(-direction, A_eq=np.ones((1, direction.size)), b_eq=[1], bounds=np.stack([low, high], 1)).fun


@settings(quick, max_examples=30)
@given(vectors, masks, st.data())
def test_project_box_simplex_is_the_closest_point(y, where, data):
    """p is the projection iff it is feasible and no feasible z has <y - p, z - p> > 0."""
    inside = within(where, np.full(where.sum(), 1 / where.sum()))
    slack = hnp.arrays(np.float64, M, elements=st.floats(0, 1))
    low = inside * data.draw(slack)
    high = inside + data.draw(slack)
    p = project_box_simplex(
        jnp.where(where, y, jnp.nan), jnp.where(where, low, jnp.nan), jnp.where(where, high, jnp.nan), where
    )
    high = np.where(where, high, 0)
    assert_array_equal(p[~where], 0)
    assert (p >= low - 1e-12).all()
    assert (p <= high + 1e-12).all()
    assert_allclose(p.sum(), 1, atol=1e-12)
    assert best_vertex(y - p, low, high) <= (y - p) @ p + 1e-9


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2e-6), (jnp.float64, 1e-13)])
@pytest.mark.parametrize("seed", range(10))
def test_project_box_simplex_of_a_thousand_unequal_boxes(seed, dtype, tolerance):
    """The sum is a staircase of steep and flat pieces, between which Newton's method alone may wander."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.linspace(-3, 3, 1000)) + rng.normal(size=1000)
    low = np.exp(rng.uniform(np.log(1e-9), np.log(1e-4), 1000))
    high = low + np.exp(rng.uniform(np.log(1e-6), np.log(0.5), 1000))
    y, low, high = (np.asarray(v, dtype).astype(float) for v in (y, low, high))
    theta = brentq(lambda t: np.clip(y - t, low, high).sum() - 1, y.min() - 1, y.max() + 1, xtol=1e-15)
    p = project_box_simplex(*(jnp.asarray(v, dtype) for v in (y, low, high)), jnp.ones(1000, bool))
    assert_allclose(p, np.clip(y - theta, low, high), atol=tolerance)
    assert_allclose(p.sum(), 1, atol=100 * tolerance)


def test_project_box_simplex_of_a_box_that_is_a_point():
    point = jnp.array([0.2, 0.3, 0.5], jnp.float32)
    assert_array_equal(project_box_simplex(jnp.array([9.0, -9, 0], jnp.float32), point, point, point > 0), point)


@quick
@given(vectors)
def test_a_wide_box_is_no_box(y):
    assert_allclose(project_box_simplex(y, jnp.zeros(M), jnp.ones(M), ALL), project_simplex(y, ALL), atol=1e-12)


# Quadratic programming


def quadratic(seed, rank):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(M, rank))
    return factor @ factor.T, rng.normal(size=M)


@pytest.mark.parametrize("rank", [0, 1, 3, M])
@pytest.mark.parametrize("where", [np.ones(M, bool), np.array([1, 0, 1, 1, 0, 1], bool)], ids=["all", "masked"])
def test_qp_simplex_has_no_duality_gap_and_agrees_with_slsqp(rank, where):
    for seed in range(5):
        hessian, linear = quadratic(seed, rank)
        both = np.outer(where, where)
        start = within(where, 1 / where.sum())
        p = np.asarray(
            qp_simplex(
                jnp.where(both, hessian, jnp.nan), jnp.where(where, linear, jnp.nan), jnp.asarray(start), where
            )
        )
        assert_array_equal(p[~where], 0)
        assert_allclose(p.sum(), 1, atol=1e-12)
        gradient = (hessian @ p + linear)[where]
        assert gradient @ p[where] - gradient.min() < 1e-6  # bounds the distance to the optimal value

        def value(p, hessian=hessian, linear=linear):
            return p @ hessian @ p / 2 + linear @ p

        theirs = minimize(
            value,
            start,
            jac=lambda p, hessian=hessian, linear=linear: hessian @ p + linear,
            bounds=[(0, float(b)) for b in where],
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        assert theirs.success
        assert_allclose(value(p), theirs.fun, atol=1e-6)
        if rank == M:  # strictly convex: one solution
            assert_allclose(p, theirs.x, atol=1e-4)


def alike(common):
    """Unit updates of 20 clients with a common direction: the cosines between them are 0 to .9995."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 300)) + common * rng.normal(size=300)


def of_two_classes():
    """Unit updates of 100 clients that hold two of ten classes each: mixtures that nearly cancel."""
    rng = np.random.default_rng(0)
    templates = rng.normal(size=(10, 300))
    pairs = np.stack([rng.permutation(10)[:2] for _ in range(100)])
    return (templates - templates.mean(0))[pairs].sum(1) + 0.5 * rng.normal(size=(100, 300))


@pytest.mark.parametrize(
    ("updates", "excess"),
    [*((alike(common), 1e-12) for common in (0, 0.5, 2, 10, 50)), (of_two_classes(), 1e-4)],
    ids=["0", "0.5", "2", "10", "50", "classes"],
)
@pytest.mark.parametrize("width", [0.1, 1.0])
def test_qp_box_simplex_finds_the_shortest_mixture_of_updates(updates, excess, width):
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    m, gram = len(unit), unit @ unit.T
    low, high = max(0, 1 / m - width), min(1, 1 / m + width)
    p = simplex_qp.qp_box_simplex(
        2 * jnp.asarray(gram),
        jnp.zeros(m),
        jnp.full(m, 1 / m),
        jnp.full(m, low),
        jnp.full(m, high),
        jnp.ones(m, bool),
    )
    slope = np.sort(gram @ p)
    room = np.clip(1 - m * low - (high - low) * np.arange(m), 0, high - low)  # the flattest slopes are filled up
    gap = p @ gram @ p - (low * slope.sum() + room @ slope)
    assert gap < excess * (p @ gram @ p)  # bounds half of what is missing to the shortest


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rounding_does_not_decide_between_updates_of_one_direction(dtype):
    """Every mixture is as short: the start stays."""
    rng = np.random.default_rng(0)
    rows = np.outer(rng.uniform(0.3, 2, 20), rng.normal(size=300)).astype(dtype)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    zero, one, even = jnp.zeros(20, dtype), jnp.ones(20, dtype), jnp.full(20, 0.05, dtype)
    p = simplex_qp.qp_box_simplex(jnp.asarray(2 * unit @ unit.T), zero, even, zero, one, jnp.ones(20, bool))
    assert_allclose(p, even, atol=2e-3)


def test_qp_simplex_does_not_care_where_it_starts():
    hessian, linear = quadratic(0, M)
    one, other = (qp_simplex(hessian, linear, jnp.asarray(start), ALL) for start in (np.eye(M)[0], np.ones(M)))
    assert_allclose(one, other, atol=1e-8)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2e-5), (jnp.float64, 1e-11)])
@pytest.mark.parametrize(("clients", "rounds"), [(4, 10), (50, 10), (50, 2000)])
def test_qp_simplex_ends_early_only_where_it_has_arrived(clients, rounds, dtype, tolerance):
    """AAggFF-S's programs, whose curvature grows with the rounds, against 20,000 plain projected gradient steps."""
    r = np.random.default_rng(clients).gamma(2, 0.5, (rounds, clients)) / clients
    g = -r / (1 + r.mean(1, keepdims=True))
    hessian = 4 * np.eye(clients) + clients / 4 * g.T @ g
    linear = ((1 - clients / 4 * g.mean(1, keepdims=True)) * g).sum(0)
    everybody, start = jnp.ones(clients, bool), jnp.full(clients, 1 / clients)
    step = 1 / np.linalg.eigvalsh(hessian)[-1]
    truth = jax.jit(
        lambda: jax.lax.fori_loop(
            0, 20_000, lambda _, p: project_simplex(p - step * (hessian @ p + linear), everybody), start
        )
    )()
    mine = jax.jit(simplex_qp.qp_simplex)(*(jnp.asarray(v, dtype) for v in (hessian, linear, start)), everybody)
    assert_allclose(mine, truth, atol=tolerance * truth.max())


def counted(monkeypatch):
    """A list that is longer by one after every step that a solver tries, and by one for its start."""
    steps = []

    def project(*args, **named):
        jax.debug.callback(lambda: steps.append(1))
        return project_simplex(*args, **named)

    monkeypatch.setattr(simplex_qp, "project_simplex", project)
    return steps


@pytest.mark.parametrize("seed", range(5))
def test_rounding_does_not_keep_the_solver_going(monkeypatch, seed):
    """AAggFF-S's programs of the first rounds, in float32: ten steps would do, and 300 are allowed."""
    clients = 100
    r = np.random.default_rng(seed).gamma(2, 0.5, (20, clients)) / clients
    g = -r / (1 + r.mean(1, keepdims=True))
    hessian = 4 * np.eye(clients) + clients / 4 * g.T @ g
    linear = ((1 - clients / 4 * g.mean(1, keepdims=True)) * g).sum(0)
    steps = counted(monkeypatch)
    single = (jnp.asarray(v, jnp.float32) for v in (hessian, linear, np.full(clients, 1 / clients)))
    simplex_qp.qp_simplex(*single, jnp.ones(clients, bool)).block_until_ready()
    jax.effects_barrier()
    assert 5 < len(steps) < 40


LENGTHS = {
    "one long": np.append(1000.0, np.ones(29)),
    "from short to long": np.geomspace(1, 1000, 30),
    "alike": np.ones(30),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_shortest_mixture_is_found_soon_whatever_the_vectors_lengths(monkeypatch, lengths, dtype):
    """By one step for all entries it took 1,000 or more, and ended elsewhere; of those alike it never ended."""
    vectors = np.random.default_rng(0).normal(size=(30, 200))
    vectors = 1 + 0.01 * vectors if lengths == "alike" else 0.1 + vectors
    gap, steps = played(monkeypatch, vectors * LENGTHS[lengths][:, None], dtype)
    assert gap < 4000 * jnp.finfo(dtype).eps
    assert steps < 100


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_solver_has_arrived_at_the_longest_vectors_weights_too(dtype):
    """They are a millionth of the shortest ones': by the largest weight's rounding it ended up to 100,000 off."""
    vectors = 0.1 + np.random.default_rng(0).normal(size=(40, 30, 200))
    vectors *= LENGTHS["from short to long"][:, None]
    gram = np.einsum("nid,njd->nij", vectors, vectors)
    shortest = jax.jit(jax.vmap(lambda g: min_norm(g, jnp.ones(30, bool), iterations=2000)))
    p = np.asarray(shortest(jnp.asarray(gram, dtype)), np.float64)
    slope = np.einsum("nij,nj->ni", gram, p)
    square = (p * slope).sum(1)
    assert ((square - slope.min(1)) / square).max() < 8000 * jnp.finfo(dtype).eps


@pytest.mark.parametrize("length", [100, 1000])
def test_the_solver_has_arrived_where_a_long_vector_opposes_all_others(length):
    """It weighs much for its length: by its weight over its pace the others' would pass for still."""
    rng, many = np.random.default_rng(0), 30
    common = rng.normal(size=200)
    vectors = common + rng.normal(size=(20, many, 200))
    vectors[:, 0] = length * (0.1 * vectors[:, 0] - common)
    gram = np.einsum("nid,njd->nij", vectors, vectors)
    shortest = jax.jit(jax.vmap(lambda g: min_norm(g, jnp.ones(many, bool), iterations=3000)))
    p = np.asarray(shortest(jnp.asarray(gram)))
    slope = np.einsum("nij,nj->ni", gram, p)
    square = (p * slope).sum(1)
    assert ((square - slope.min(1)) / square).max() < 1e-10


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("scale", [1.0, 2.0**16, 2.0**40, 1e36])
def test_curvatures_bound_what_rounding_leaves(scale, even):
    """In float32, of vectors much alike and one apart: what is left of Q may have negative eigenvalues."""
    rng, many = np.random.default_rng(0), 100
    vectors = 1 + 1e-6 * rng.normal(size=(8, many, 50))
    vectors[:, 0] += 3e-3 * rng.normal(size=(8, 50))
    gram = jnp.asarray(np.einsum("nid,njd->nij", vectors, vectors) * (scale / 50), jnp.float32)
    everybody = jnp.ones(many, bool)
    of = jax.jit(jax.vmap(lambda g: simplex_qp.quadratic(g, everybody, even)))(gram)
    pace = np.ones((8, many)) if of.pace is None else np.asarray(of.pace, np.float64)
    left = np.asarray(of.hessian, np.float64) * np.sqrt(pace[:, :, None] * pace[:, None, :])
    largest = np.linalg.eigvalsh(left)[:, -1]
    assert (of.least > 0).all()
    assert (of.least <= of.most).all()
    assert (of.most >= largest * (1 - 1e-5)).all()
    p = jax.vmap(lambda g: min_norm(g, everybody, even=even))(gram)
    assert_allclose(p.sum(1), 1, atol=1e-5)  # not NaN


@pytest.mark.parametrize(("first", "limit"), [(1, 70), (1e-2, 100), (1e-6, 130)])
def test_steps_go_by_the_curvature_that_they_meet(monkeypatch, first, limit):
    """One eigenvalue of 10 beside many of 1: the solver begins with a fifth of it, or with less.

    By the largest that it could be, the root of the squares' sum, it would take 79 steps from the start.
    """
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    hessian, linear = turn * np.append(10, np.ones(29)) @ turn.T, 0.1 * rng.normal(size=30)
    everybody, start = jnp.ones(30, bool), jnp.full(30, 1 / 30)
    of = simplex_qp.quadratic(jnp.asarray(hessian), everybody, even=True)
    assert of.least < 0.5 * np.linalg.eigvalsh(of.hessian)[-1] < 0.5 * of.most
    of, steps = of._replace(least=first * of.least), counted(monkeypatch)
    p = np.asarray(simplex_qp.descend_on_simplex(of, jnp.asarray(linear), start, everybody))
    jax.effects_barrier()
    assert len(steps) < limit
    slope = hessian @ p + linear
    assert p @ slope - slope.min() < 1e-12
    assert p.max() < 0.9  # not a vertex, where every solver ends


@pytest.mark.parametrize("seed", range(3))
def test_the_shortest_mixture_of_vectors_much_alike_is_found_soon(monkeypatch, seed):
    """Rounding of what is common to all, left in the linear term, kept two of these going to the end."""
    gap, steps = played(monkeypatch, 1 + 0.05 * np.random.default_rng(seed).normal(size=(10, 610)), jnp.float32)
    assert gap < 1e-6
    assert steps < 50


def played(monkeypatch, vectors, dtype):
    """The duality gap of the shortest mixture, a part of its square, and the solver's steps."""
    many, steps = len(vectors), counted(monkeypatch)
    gram, nothing, even = vectors @ vectors.T, np.zeros(many), np.full(many, 1 / many)
    arguments = (jnp.asarray(v, dtype) for v in (gram, nothing, even))
    p = np.asarray(simplex_qp.qp_simplex(*arguments, jnp.ones(many, bool), iterations=2000), np.float64)
    jax.effects_barrier()
    slope = gram @ p
    return (p @ slope - slope.min()) / (p @ slope), len(steps)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize(("noise", "close"), [(1e-6, 1e-6), (1e-5, 1e-5), (3e-4, 2e-4), (0.1, 1e-4)])
def test_of_vectors_that_are_much_alike_the_shortest_mixture_is_none_of_rounding(noise, close, scale):
    """In float32, where what is left of Q is rounding alone: some of its squares are 0, and others below."""
    vectors = 1 + noise * np.random.default_rng(0).normal(size=(20, 6, 9))
    gram = np.einsum("nid,njd->nij", vectors, vectors)
    p = jax.vmap(lambda g: min_norm(g, jnp.ones(6, bool)))(jnp.asarray(scale * gram, jnp.float32))
    assert_allclose(p.sum(1), 1, atol=1e-5)
    p = np.asarray(p, np.float64)
    slope = np.einsum("nij,nj->ni", gram, p)
    gap = (p * slope).sum(1) - slope.min(1)
    assert (gap / 9).max() < close


def test_a_short_vector_beside_many_alike_is_as_good_as_all():
    """Hull of 29 vectors around (1, 1, ...) and one that is short: no client ascends along the shortest mixture."""
    for short in (0.1, 1e-3):
        vectors = 1 + 0.3 * np.random.default_rng(0).normal(size=(30, 200))
        vectors[0] *= short
        gram = vectors @ vectors.T
        p = np.asarray(min_norm(jnp.asarray(gram, jnp.float32), jnp.ones(30, bool)), np.float64)
        slope = gram @ p
        assert slope.min() > 0.999 * (p @ slope)


@pytest.mark.parametrize("far", [1.0, 1e4, 1e6])
def test_a_projection_stays_on_the_simplex_from_afar(far):
    y = (far * np.random.default_rng(0).normal(size=50)).astype(np.float32)
    pace = np.geomspace(1e-6, 1, 50).astype(np.float32)
    assert_allclose(project_simplex(y, np.ones(50, bool), pace=pace).sum(), 1, rtol=1e-6)


def test_qp_simplex_does_not_take_a_vertex_in_passing_for_its_end():
    """Momentum carries the iterate over the edge, the projection sets it on the vertex again: nothing has moved."""
    hessian = jnp.array([[0.5, -1.34, 0.91], [-1.34, 3.62, -2.47], [0.91, -2.47, 1.69]])
    linear, everybody = jnp.array([-0.3, 1.4, 0.4]), jnp.ones(3, bool)
    p = qp_simplex(hessian, linear, jnp.full(3, 1 / 3), everybody)
    slope = hessian @ p + linear
    assert_allclose(slope[p > 1e-9], slope.min(), atol=1e-9)  # the condition for a minimum
    assert_allclose(p, [0.9794, 0.0206, 0], atol=1e-4)


def test_qp_simplex_of_many_small_programs_fulfils_the_conditions_for_a_minimum():
    rng = np.random.default_rng(3)
    half, linear = rng.normal(size=(2000, 4, 3)), rng.normal(size=(2000, 4))
    hessian, start = half @ half.transpose(0, 2, 1), jnp.full(4, 1 / 4)
    everybody = jnp.ones(4, bool)
    p = jax.vmap(lambda h, c: simplex_qp.qp_simplex(h, c, start, everybody, iterations=3000))(hessian, linear)
    slope = np.einsum("nij,nj->ni", hessian, p) + linear
    gap = (p * slope).sum(1) - slope.min(1)  # the duality gap
    assert gap.max() < 1e-8


# The KL ball


def kl_to_uniform(p):
    p = np.asarray(p, np.float64)
    return (p * np.log(np.maximum(p, 1e-300) * p.size)).sum()


@pytest.mark.parametrize("project", [project_kl_ball, project_kl_ball_as_on_a_gpu], ids=["halved", "cut"])
@quick
@given(log_q=vectors, where=masks, rho=st.floats(0, 2, width=32))
def test_project_kl_ball(project, log_q, where, rho):
    """On the ray q^s, on the ball where q is outside it, and q itself where it is inside."""
    log_p = np.asarray(project(jnp.where(where, log_q, jnp.nan), rho, where))[where]
    q = np.exp(log_q[where] - log_q[where].max())
    q /= q.sum()
    p = np.exp(log_p)
    assert_allclose(p.sum(), 1)
    assert_allclose(kl_to_uniform(p), min(rho, kl_to_uniform(q)), atol=1e-9)
    if kl_to_uniform(q) <= rho:
        assert_allclose(p, q, rtol=1e-9)
    spread = np.ptp(np.log(q))
    assume(spread > 1e-3)
    s = np.ptp(log_p) / spread
    assert 0 <= s <= 1 + 1e-9
    assert_allclose(log_p - log_p.mean(), s * (np.log(q) - np.log(q).mean()), atol=1e-9)


def test_a_larger_ball_lets_weights_go_further():
    log_q = jnp.array([0.0, 1, 2, 4, 3, 0.5])
    radii = jnp.array([0.0, 1e-4, 0.01, 0.1, 0.4, 0.6, 5.0])
    log_p = jax.vmap(lambda rho: project_kl_ball(log_q, rho, ALL))(radii)
    assert_allclose(np.exp(log_p[0]), np.full(M, 1 / M), atol=1e-12)
    assert (np.diff(np.exp(log_p).max(axis=1)) > 0).all()
    assert_allclose(np.exp(log_p[-1]), solvers.softmax(log_q, ALL), rtol=1e-12)


def test_without_any_root_the_smallest_temper_is_taken():
    log_q = jnp.array([0.0, 1, 2, 4, 3, 0.5])
    log_p = project_kl_ball(log_q, -0.1, ALL, smallest=0.25)
    assert_allclose(np.exp(log_p), solvers.softmax(0.25 * log_q, ALL), rtol=1e-9)


@pytest.mark.parametrize("project", [project_kl_ball, project_kl_ball_as_on_a_gpu], ids=["halved", "cut"])
@pytest.mark.parametrize("scale", [1e4, 1e16, 3e38])
def test_project_kl_ball_of_huge_float32(project, scale):
    log_q = (scale * np.random.default_rng(0).uniform(0, 1, 50)).astype(np.float32)
    log_p = project(log_q, 1.0, jnp.ones(50, bool))
    assert log_p.dtype == jnp.float32
    assert np.isfinite(log_p).all()
    assert_allclose(kl_to_uniform(np.exp(np.asarray(log_p, np.float64))), 1, atol=1e-4)
