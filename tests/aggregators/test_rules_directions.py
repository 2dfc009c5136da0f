"""Laws of the rules that mix gradients, rank losses or remember updates; what they become at the ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import coefficients, everybody, make_report, random_report
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.numerics.min_norm import min_norm, min_norm_in_halfspace

LOSSES = np.array([0.3, 2.1, 1.2, 0.9, 3.3, 0.7, 1.9, 2.6], np.float32)
SIZES = np.array([50, 20, 400, 75, 310, 120, 33, 90], np.float32)


def updates_of(report):
    return np.concatenate([np.asarray(u).reshape(len(report.ids), -1) for u in report.updates.values()], 1)


def direction(rule, report):
    return coefficients(rule, report) @ updates_of(report)


@pytest.mark.parametrize("seed", range(5))
def test_the_shortest_vector_of_a_hull_has_no_shorter_neighbour(seed):
    g = updates_of(random_report(seed, 6))
    mixture = np.asarray(min_norm(jnp.asarray(g @ g.T), jnp.ones(6, bool), 2000))
    d = mixture @ g
    assert_allclose(mixture.sum(), 1, rtol=1e-5)
    assert (g @ d >= d @ d * (1 - 1e-4)).all()


@pytest.mark.parametrize("seed", range(5))
def test_in_a_halfspace_it_keeps_to_its_side_at_the_least_length(seed):
    rng = np.random.default_rng(seed)
    g = updates_of(random_report(seed, 6))
    gram, slope = g @ g.T, rng.normal(size=6).astype(np.float32)
    found = np.asarray(min_norm_in_halfspace(jnp.asarray(gram), jnp.asarray(slope), jnp.ones(6, bool), 2000))
    assert found @ slope >= -1e-5
    tried = rng.dirichlet(np.ones(6), 20_000)
    allowed = tried[tried @ slope >= 0]
    assert len(allowed) > 1000
    shortest = np.einsum("ki,ij,kj->k", allowed, gram, allowed).min()
    assert found @ gram @ found <= shortest * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_fedmdfg_descends_for_everybody(seed):
    report = random_report(seed, 5)
    d = direction(ff.fedmdfg(), report)
    assert (updates_of(report) @ d > 0).all()
    assert_allclose(np.linalg.norm(d), np.linalg.norm(stretched(report).mean(0)), rtol=1e-4)


def stretched(report):
    """Every update at the cohort's mean length."""
    g = updates_of(report)
    length = np.linalg.norm(g, axis=1)
    return g * (length.mean() / length)[:, None]


def test_fedmdfg_with_equal_losses_is_not_guided():
    report = random_report(0, 5)
    level, apart = (report._replace(loss=jnp.asarray(v, jnp.float32)) for v in ([2.0] * 5, [0.1, 0.1, 0.1, 0.1, 4]))
    free = direction(ff.fedmdfg(theta=89.0), level)
    assert_allclose(direction(ff.fedmdfg(), level), free, rtol=1e-5)
    assert np.abs(direction(ff.fedmdfg(), apart) - free).max() > 1e-3


def test_fedmdfg_guides_when_some_losses_exceed_what_is_usual():
    """Nearly equal losses, of which one has risen since the last round."""
    first = random_report(0, 5)._replace(loss=jnp.array([1.0, 1.01, 0.99, 1.0, 1.02]))
    risen = first._replace(loss=first.loss.at[1].set(1.05))
    rule = ff.fedmdfg()
    state = rule.weigh(rule.init(jnp.ones(8)), first, jax.random.key(0))[1]
    assert not state.guided
    assert rule.weigh(state, risen, jax.random.key(0))[1].guided
    assert not rule.weigh(state, first._replace(loss=first.loss + 0.05), jax.random.key(0))[1].guided  # all have


@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
def test_adafed_gives_each_client_in_proportion_to_its_loss(gamma):
    report = random_report(3, 5)
    g = updates_of(report)
    gain = g @ direction(ff.adafed(gamma), report) / np.linalg.norm(g, axis=1)
    share = gain / np.asarray(report.loss) ** gamma
    assert_allclose(share, share[0], rtol=1e-3)


def test_fairmoo_closes_the_gap_first_and_does_not_widen_it_then():
    report = random_report(1, 5)
    spread = np.asarray(report.loss) - np.asarray(report.loss).mean()
    gap = (2 / 5) * spread @ updates_of(report)  # the way in which the variance of the losses falls
    d = direction(ff.fairmoo(prefer=0.01), report)
    assert_allclose(d, 0.2 * gap / np.linalg.norm(gap), rtol=1e-4, atol=1e-6)
    fair = direction(ff.fairmoo(prefer=100.0), report)
    assert fair @ gap >= -1e-4
    assert_allclose(np.linalg.norm(fair), 0.2, rtol=1e-4)


@pytest.mark.parametrize("short", [1e-4, 0.0])
def test_fairmoo_steps_as_far_beside_a_client_that_hardly_moved(short):
    g = np.array([[short, 0, 0], [0, 1, 0], [0, 0.2, 1]], np.float32)
    coef = coefficients(ff.fairmoo(), make_report(0, range(3), loss=[1, 1.01, 1.02], gram=g @ g.T))
    assert_allclose(np.linalg.norm(coef @ g), 0.2, rtol=1e-4)
    assert (coef[0] == 0) == (short == 0)


def test_gifair_counts_how_many_losses_lie_below():
    coef = coefficients(ff.gifair(coeff=1.0), everybody(LOSSES), sizes=SIZES)
    p = SIZES / SIZES.sum()
    r = np.sign(LOSSES[:, None] - LOSSES[None]).sum(1)
    assert_allclose(coef, p + p.min() / 7 * r, rtol=1e-4)
    assert_allclose(coefficients(ff.gifair(coeff=0.0), everybody(LOSSES), sizes=SIZES), p, rtol=1e-5)
    shifted = coefficients(ff.gifair(coeff=1.0), everybody(LOSSES + 5), sizes=SIZES)
    assert_allclose(shifted, coef, rtol=1e-5)


def test_gifair_ranks_nobody_who_has_not_been_heard_of():
    """Of two of eight clients in the first round one lies above one."""
    report = make_report(0, [3, 6], loss=[2.0, 1.0])
    p, room = SIZES / SIZES.sum(), SIZES.min() / SIZES.sum() / 7
    raw = np.array([p[3] + room / 2, p[6] - room / 2])
    assert_allclose(coefficients(ff.gifair(), report, sizes=SIZES), raw / raw.sum(), rtol=1e-5)


def test_gifairs_groups_must_be_the_federations():
    with pytest.raises(ValueError, match="groups must hold one number for each of 8 clients, got 3"):
        ff.gifair(groups=[0, 1, 1]).init(jnp.ones(8))


WRONG = {
    "groups must be whole numbers from 0": lambda: ff.gifair(groups=[0.5, 1]),
    "groups must be numbered 0, 1, ... without a gap": lambda: ff.gifair(groups=[0, 2]),
    "coeff must be in [0, 1], got 2": lambda: ff.gifair(2),
    "reading must be one of": lambda: ff.gifair(reading="huawei"),
    "theta must be in [0, 1], got 1.5": lambda: ff.superquantile(1.5),
    "theta must be in (0, 90), got 90": lambda: ff.fedmdfg(90),
    "line_search must be at least 0, got -1": lambda: ff.fedmdfg(line_search=-1),
    "gamma must be at least 0, got -1": lambda: ff.adafed(-1),
    "prefer must be at least 0, got -1": lambda: ff.fairmoo(-1),
    "lr must be above 0, got 0": lambda: ff.fairmoo(lr=0),
    "lr must be at least 0, got -1": lambda: ff.drfa(-1),
    "sampling must be one of": lambda: ff.drfa(sampling="uniform"),
    "threshold must be": lambda: ff.fedheal(1.5),
    "beta must be in [0, 1], got 2": lambda: ff.fedheal(0.3, 2),
    "alpha must be in [0, 1), got 2": lambda: ff.fedeba_plus(alpha=2),
    "theta must be in [0, 90], got 91": lambda: ff.fedeba_plus(theta=91),
    "iterations must be at least 1, got 0": lambda: ff.fedlf(iterations=0),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_setting_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        WRONG[sentence]()
    assert str(error.value).startswith(sentence)


def test_the_superquantiles_ends_are_fedavg_and_the_worst_client():
    report = everybody(LOSSES)
    assert_allclose(coefficients(ff.superquantile(1.0), report), SIZES / SIZES.sum(), rtol=1e-6)
    assert_array_equal(coefficients(ff.superquantile(0.0), report).nonzero()[0], [4])
    ties = everybody(np.where(LOSSES > 1.5, 3.0, LOSSES))
    assert_array_equal(coefficients(ff.superquantile(0.0), ties).nonzero()[0], [1, 4, 6, 7])


@pytest.mark.parametrize("theta", [0.0, 1e-7])
def test_the_superquantile_sees_a_small_client_beside_millions_of_examples(theta):
    report = make_report(0, range(3), loss=[1, 3, 2], n=[3e6, 1, 2])
    assert_array_equal(coefficients(ff.superquantile(theta), report), [0, 1, 0])


def stepped(method, reports, cohort=8):
    """The steps that a server transform makes of some rounds' reports."""
    params = jax.tree.map(lambda u: u[0], reports[0].updates)
    transform, steps = method.transform(8, cohort), []
    state = transform.init(params)
    for report in reports:
        step, state = transform.update(params, state, report=report)
        steps.append(jax.tree.map(jnp.negative, step))
    return steps


def test_fedheal_that_masks_nothing_and_weighs_alike_is_the_mean():
    reports = [random_report(t, 8) for t in range(3)]
    for step, report in zip(stepped(ff.fedheal(threshold=-1.0, beta=0.0), reports), reports):
        mean = jax.tree.map(lambda u: u.mean(0), report.updates)
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5, atol=1e-6), step, mean)


def test_fedheal_leaves_out_what_turns_back():
    """A client that moves every entry one way and then the other counts no longer; who moves on does."""
    there = random_report(0, 8)
    back = there._replace(updates=jax.tree.map(lambda u: u.at[2].multiply(-1.0), there.updates))
    gone = there._replace(active=there.active.at[2].set(False))
    turned, without = (stepped(ff.fedheal(beta=0.0), [there, last])[-1] for last in (back, gone))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-6), turned, without)


@pytest.mark.parametrize("seed", range(3))
def test_fedlf_descends_for_everybody_in_every_layer(seed):
    report = random_report(seed, 5)
    (step,) = stepped(ff.fedlf(), [report], cohort=8)
    for name, d in step.items():
        rows = np.asarray(report.updates[name]).reshape(5, -1)
        assert (rows @ np.asarray(d).ravel() >= -1e-6).all()
    length = np.sqrt(sum((np.asarray(d) ** 2).sum() for d in step.values()))
    assert_allclose(length, np.linalg.norm(updates_of(report).mean(0)), rtol=1e-4)


def fedmdfg_twice(report, again):
    """The direction of a round; and those of a second one by a solver that may take few steps, which begins where
    the first ended, or afresh."""
    many, few = ff.fedmdfg(1.0), ff.fedmdfg(1.0, iterations=2)
    state = many.init(SIZES)
    coef, after = many.weigh(state, report, None)
    repeated, fresh = (few.weigh(at, again, None)[0] for at in (after, state))
    return coef @ updates_of(report), repeated @ updates_of(again), fresh @ updates_of(again)


def fedlf_twice(history):
    def twice(report, again):
        params = jax.tree.map(lambda u: u[0], report.updates)
        many, few = (ff.fedlf(history, iterations).transform(8, 6) for iterations in (2000, 2))
        first, after = many.update(params, many.init(params), report=report)
        repeated, fresh = (few.update(params, at, report=again)[0] for at in (after, many.init(params)))
        return tuple(np.concatenate([-d.ravel() for d in step.values()]) for step in (first, repeated, fresh))

    return twice


@pytest.mark.parametrize(
    "twice", [fedmdfg_twice, fedlf_twice(False), fedlf_twice(True)], ids=["fedmdfg", "fedlf", "all"]
)
def test_the_search_for_a_direction_begins_at_each_clients_weight_of_the_round_before(twice):
    """In other slots of the cohort as well."""
    report = random_report(2, 6)
    order = np.array([3, 0, 5, 1, 4, 2])
    again = jax.tree.map(lambda leaf: leaf[order], report)._replace(gram=report.gram[order][:, order])
    direction, repeated, fresh = twice(report, again)
    length = np.linalg.norm(direction)
    assert np.linalg.norm(repeated - direction) < 1e-3 * length
    assert np.linalg.norm(fresh - direction) > 1e-2 * length


@pytest.mark.parametrize("method", [ff.fedmdfg(), ff.fedlf(False), ff.fedlf(True)], ids=["fedmdfg", "fedlf", "all"])
def test_a_round_whose_products_overflow_spoils_no_direction_after_it(method):
    """Squared lengths are finite there, so that nobody is left out."""
    rng, unequal = np.random.default_rng(0), [9.0, 0.1, 0.2, 0.1, 0.3, 0.2]

    def report_of(rows, scale, **loss):
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        gram, updates = scale * (scale * rows @ rows.T), {"w": jnp.asarray(scale * rows)}
        return random_report(2, 6, **loss)._replace(updates=updates, gram=jnp.asarray(gram))

    good = report_of(rng.normal(size=(6, 20)), np.float32(1))
    # Alike, and with losses far from equal, whose guidance adds up to more than any update.
    bad = report_of(5 + rng.normal(size=(6, 20)), np.float32(1.7e19), loss=unequal)
    assert np.isfinite(bad.gram).all()
    if isinstance(method, ff.Aggregator):
        start = method.init(SIZES)
        spoilt, state = method.weigh(start, bad, None)
        after, fresh = (method.weigh(at, good, None)[0] for at in (start._replace(weights=state.weights), start))
        assert not np.isfinite(spoilt).all()
    else:
        (_, after), (fresh,) = (stepped(method, reports, cohort=6) for reports in ([bad, good], [good]))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-3, atol=1e-5), after, fresh)


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("still", [["w"], ["w", "b"]], ids="+".join)
def test_who_does_not_move_in_a_layer_of_fedlf_leaves_its_direction_to_the_others(still, history):
    """However large its loss: a free rider's part would turn the rest of the fair row against everybody."""
    report = random_report(1, 5)
    report = report._replace(loss=report.loss.at[0].add(10.0))
    rides = report._replace(updates={n: u.at[0].multiply(n not in still) for n, u in report.updates.items()})
    gone = report._replace(active=report.active.at[0].set(False))
    method = ff.fedlf(history=history)
    (step,), (without,) = (stepped(method, [each], cohort=5) for each in (rides, gone))
    rows = np.asarray(report.updates["w"]).reshape(5, -1)
    d, other = (np.asarray(each["w"]).ravel() for each in (step, without))
    assert (rows[1:] @ d > 0).all()
    assert_allclose(d / np.linalg.norm(d), other / np.linalg.norm(other), rtol=1e-3, atol=1e-4)


def test_fedheals_share_of_falls_is_one_in_half_precision_too():
    """Of a bfloat16 model as well: 200 rounds downwards, then 800 up."""
    report = random_report(0, 1, n_clients=1)
    transform = ff.fedheal().transform(1, 1)
    params = {"w": jnp.zeros(2, jnp.bfloat16)}

    def play(memory, way):
        moved = report._replace(updates={"w": jnp.full((1, 2), way, jnp.bfloat16)})
        return transform.update(params, memory, report=moved)[1], None

    ways = jnp.repeat(jnp.array([-1.0, 1.0], jnp.bfloat16), jnp.array([200, 800]), total_repeat_length=1000)
    memory, _ = jax.lax.scan(play, transform.init(params), ways)
    assert_allclose(memory.falls["w"], 0.2, rtol=1e-4)


def test_fedlf_remembers_inner_products_of_half_precision_in_full():
    report = random_report(0, 5)
    half = report._replace(updates=jax.tree.map(lambda u: u.astype(jnp.bfloat16), report.updates))
    transform = ff.fedlf().transform(8, 5)
    params = jax.tree.map(lambda u: u[0], half.updates)
    _, memory = transform.update(params, transform.init(params), report=half)
    for name, gram in memory.gram.items():
        rows = np.asarray(half.updates[name].astype(jnp.float32)).reshape(5, -1)
        assert_allclose(gram[half.ids][:, half.ids], rows @ rows.T, rtol=1e-5, atol=1e-6)


def test_models_that_are_not_remembered_for_want_of_room():
    large = {"w": jax.ShapeDtypeStruct((1_200_000_000,), jnp.float32)}
    for method, sentence in ((ff.fedlf(), "take history=False"), (ff.fedheal(), "take fewer clients")):
        with pytest.raises(ValueError, match=rf"would remember a model of 8 clients, 35\.8 GiB.*{sentence}"):
            jax.eval_shape(method.transform(8, 4).init, large)
