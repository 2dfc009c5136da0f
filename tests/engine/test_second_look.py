"""A rule's second look, after training and before the server moves: DRFA's mixture, FedMDFG's line search."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from contract import make_report
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.types import Aggregator, Method

LOCAL = ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=3)
EVERYBODY = ff.uniform(5)


@pytest.fixture(scope="module", autouse=True)
def quick(quick_to_compile):
    pass


def one_round(data, rule, **settings):
    sim = toy.simulation(data, rule, **{"trainer": LOCAL, "selector": ff.uniform(3)} | settings)
    before = sim.init(toy.KEY)
    after, info = jax.jit(sim.step)(before, data)
    return sim, before, after, info


def remembered(look):
    """Uniform averaging that keeps what ``look(report, losses)`` tells, f[5]."""

    def weigh(state, report, key):
        return report.active / report.active.sum(), state

    def revise(state, coef, report, key, losses):
        return coef, look(report, losses)

    return Method(Aggregator(lambda sizes, key=None: jnp.zeros(5), weigh), revise=revise)


def test_losses_are_those_of_the_model_moved_by_the_update(data):
    def look(report, losses):
        mean = jax.tree.map(lambda u: u.mean(0), report.updates)
        return losses(mean, jnp.arange(5))

    _, _, after, info = one_round(data, remembered(look))
    assert_allclose(info.coef, 1 / 3)
    moved = toy.simulation(data, ff.afl(), trainer=LOCAL, selector=EVERYBODY)
    received = jax.jit(moved.step)(moved.init(toy.KEY)._replace(params=after.params), data)[1]
    assert_allclose(after.aggregator[received.ids], received.loss, rtol=1e-5)


def test_an_absent_client_answers_nothing_and_a_liar_lies(data):
    def look(report, losses):
        return losses(jax.tree.map(lambda u: 0 * u[0], report.updates), jnp.arange(5))

    honest = one_round(data, remembered(look))[2].aggregator
    there = np.array([[True, True, False, True, True]])
    told = one_round(data, remembered(look), available=ff.availability.trace(there))[2].aggregator
    assert_array_equal(np.isnan(told), ~there[0])
    liar = [ff.faults.inflate_loss(np.arange(5) == 4, factor=10.0)]
    assert_allclose(one_round(data, remembered(look), faults=liar)[2].aggregator[4], 10 * honest[4], rtol=1e-5)


def test_revised_coefficients_move_the_server_and_what_is_not_finite_stays_out(data):
    def rule(factor):
        weigh = remembered(None).aggregator
        return Method(weigh, revise=lambda state, coef, report, key, losses: (factor * coef, state))

    plain, double = (one_round(data, rule(factor)) for factor in (1.0, 2.0))
    step, doubled = (jax.tree.map(jnp.subtract, one[2].params, one[1].params) for one in (plain, double))
    toy.close(doubled, jax.tree.map(lambda v: 2 * v, step), rtol=1e-5, atol=1e-6)
    _, _, after, info = one_round(data, rule(jnp.array([1.0, jnp.nan, 1.0])))
    assert info.active.tolist() == [True, False, True]
    assert np.isfinite(jax.flatten_util.ravel_pytree(after.params)[0]).all()


@pytest.mark.parametrize(
    ("revise", "sentence"),
    [
        (
            lambda state, coef, *_: coef,
            "revise must return (coefficients [3], state), one for each client of the cohort, got one array",
        ),
        (lambda state, coef, *_: (coef, ()), "revise must return a state of the same form as init's"),
    ],
)
def test_a_wrong_second_look_is_one_sentence(data, revise, sentence):
    rule = Method(remembered(None).aggregator, revise=revise)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        one_round(data, rule)
    assert str(error.value).startswith(sentence)


def test_drfa_asks_for_the_losses_at_the_snapshot_it_drew(data):
    """After the first round, whose snapshot is the end: full batches and everybody, so that nothing is chance."""
    sizes = data.sizes / data.sizes.sum()
    plain = one_round(data, ff.fedavg("uniform"), selector=EVERYBODY, trainer=toy.FULL)[2].params
    asking = toy.simulation(data, ff.afl(), trainer=toy.FULL, selector=EVERYBODY)
    ask = jax.jit(asking.step)
    for sampling in ("mixture", "selector"):
        rule = ff.drfa(0.05, sampling)
        _, before, after, info = one_round(data, rule, selector=EVERYBODY, trainer=toy.FULL)
        assert_allclose(np.asarray(before.aggregator.weights), sizes, rtol=1e-6)
        assert_allclose(np.asarray(info.coef), sizes[np.asarray(info.ids)], rtol=1e-5)
        # Drawn by the mixture, clients are asked about the model that they move to; else about their plain mean.
        snapshot = after.params if sampling == "mixture" else plain
        asked = ask(asking.init(toy.KEY)._replace(params=snapshot), data)[1]
        loss = np.zeros(5)
        loss[np.asarray(asked.ids)] = asked.loss
        risen = sizes + 0.05 * loss  # one step, everybody asked
        excess = (risen.sum() - 1) / 5
        assert (risen > excess).all()
        assert_allclose(after.aggregator.weights, risen - excess, rtol=1e-4)
        assert 0 < float(after.aggregator.share) <= 1


def test_drfa_takes_no_other_selector_in_silence(data):
    with pytest.raises(ValueError, match="drfa draws from all clients by its own mixture"):
        one_round(data, ff.drfa(), selector=ff.excluding([4], ff.uniform(3)))
    first = ff.uniform(3)._replace(select=lambda state, key, context: (jnp.arange(3), state))
    assert one_round(data, ff.drfa(sampling="selector"), selector=first)[3].ids.tolist() == [0, 1, 2]


def test_drfa_forgets_a_loss_that_would_overflow_its_mixture():
    rule = ff.drfa(0.1)
    report = make_report(0, range(3))._replace(message=jnp.zeros((3, 1)))
    state = rule.aggregator.init(jnp.ones(3))
    coef, _ = rule.aggregator.weigh(state, report, toy.KEY)
    losses = jnp.array([1.0, 3e38, 2.0])
    after = rule.revise(state, coef, report, toy.KEY, lambda update, ids: losses[ids])[1]
    assert np.isfinite(after.weights).all()
    assert_allclose(after.weights.sum(), 1, rtol=1e-6)


def test_drfa_without_ascent_is_fedavg_by_size(data):
    mine = one_round(data, ff.drfa(0.0), selector=EVERYBODY, trainer=toy.FULL)[2].params
    plain = one_round(data, ff.fedavg(), selector=EVERYBODY, trainer=toy.FULL)[2].params
    toy.close(mine, plain, rtol=1e-5, atol=1e-6)


def test_drfas_snapshot_is_taken_on_the_way(data):
    """A third of three full-batch steps is the model after the first, a half that after the second."""
    rule, steps = ff.drfa(), ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=None)

    def sums(report, moves):
        total = jax.vmap(lambda m: sum(v.sum() for v in jax.tree.leaves(m)))(moves)
        return jnp.zeros(5).at[report.ids].set(total)

    def revise(state, coef, report, key, losses):
        return coef, state._replace(weights=sums(report, report.message))

    sim = toy.simulation(data, rule._replace(revise=revise), trainer=steps, selector=EVERYBODY)
    step, begun = jax.jit(sim.step), sim.init(toy.KEY)
    for share, count in ((1 / 3, 1), (0.5, 2), (1.0, 3)):
        drawn = begun._replace(aggregator=begun.aggregator._replace(share=jnp.float32(share)))
        after, _ = step(drawn, data)
        few = ff.local_sgd(optax.sgd(0.1), steps=count, batch_size=None)
        alone = remembered(lambda report, losses: sums(report, report.updates))
        wanted = one_round(data, alone, selector=EVERYBODY, trainer=few)[2].aggregator
        assert_allclose(after.aggregator.weights, wanted, rtol=1e-4, atol=1e-6)


TARGETS = np.array([[1.0, 0.2], [0.3, 1.0], [0.8, 0.9]], np.float32)  # minima of three quadratics; w = 0


def searched(s, length, state=lambda state: state):
    """The factor that a line search finds for a step towards the mean of the minima, and the losses after it."""
    rule = ff.fedmdfg(line_search=s)
    updates = jnp.asarray(TARGETS) * length
    loss = (TARGETS**2).sum(1) / 2
    report = make_report(0, range(3), loss=loss)._replace(updates=updates, gram=updates @ updates.T)
    coef = jnp.full(3, 1 / 3, jnp.float32)
    begun = rule.aggregator.weigh(rule.aggregator.init(jnp.ones(3)), report, toy.KEY)[1]

    def losses(update, ids):
        return ((jnp.asarray(TARGETS)[ids] - update[None]) ** 2).sum(1) / 2

    found, _ = rule.revise(state(begun), coef, report, toy.KEY, losses)
    factor = float(found[0] / coef[0])

    def at(factor):
        return np.asarray(losses(factor * updates.mean(0), jnp.arange(3)))

    return factor, loss, at


@pytest.mark.parametrize("length", [0.1, 0.6, 1.0, 7.0])
def test_a_line_search_takes_the_longest_step_that_raises_no_loss(length):
    factor, loss, at = searched(3, length, lambda state: state._replace(guided=jnp.int32(0)))
    assert (at(factor) <= loss).all()
    assert factor == 8 or (at(2 * factor) > loss).any()


def test_under_guidance_the_losses_do_not_come_apart():
    factor, loss, at = searched(3, 1.0, lambda state: state._replace(guided=jnp.int32(1)))

    def angle(values):
        return np.arccos(values.sum() / np.linalg.norm(values) / np.sqrt(3))

    longest = max(f for f in 2.0 ** np.arange(-3, 4) if (at(f) <= loss).all() and angle(at(f)) <= angle(loss))
    assert factor == longest


def test_with_others_than_in_the_last_round_the_search_begins_at_the_step_itself():
    assert searched(3, 0.1, lambda state: state._replace(same=jnp.int32(0), guided=jnp.int32(0)))[0] == 1


def test_where_no_step_will_do_the_least_total_is_taken():
    factor, loss, at = searched(1, -1.0)  # away from everybody
    tried = [2.0, 1.0, 0.5]
    assert all(at(f).sum() > loss.sum() for f in tried)
    assert factor == 0.5


def test_where_some_loss_always_rises_the_longest_step_that_lowers_their_sum_is_taken():
    """Not the one of the least sum: towards two minima, away from a third."""
    targets = np.array([[-1.0, 0.0], [1.0, 0.1], [1.0, -0.1]], np.float32)
    updates = jnp.asarray(np.repeat(targets[1:].mean(0)[None], 3, 0))
    loss = jnp.asarray((targets**2).sum(1) / 2)
    report = make_report(0, range(3), loss=loss)._replace(updates=updates, gram=updates @ updates.T)
    rule, coef = ff.fedmdfg(line_search=3), jnp.full(3, 1 / 3, jnp.float32)
    state = rule.aggregator.init(jnp.ones(3))._replace(same=jnp.int32(1))

    def losses(update, ids):
        return ((jnp.asarray(targets)[ids] - update[None]) ** 2).sum(1) / 2

    tried = 2.0 ** np.arange(3, -4, -1)
    sums = np.array([np.asarray(losses(f * updates.mean(0), jnp.arange(3))).sum() for f in tried])
    falling = tried[sums < float(loss.sum())]
    assert len(falling) > 1
    assert falling[0] != tried[sums.argmin()]
    found, _ = rule.revise(state, coef, report, toy.KEY, losses)
    assert_allclose(found / coef, falling[0])


def test_the_rule_knows_whether_somebody_of_the_last_cohort_is_missing():
    rule = ff.fedmdfg(line_search=1).aggregator
    state = rule.init(jnp.ones(8))
    for ids, same in (([0, 1], 1), ([0, 1], 1), ([0, 1, 2], 1), ([1, 2, 3], 0)):
        state = rule.weigh(state, make_report(0, ids), toy.KEY)[1]
        assert bool(state.same) == bool(same)


def test_a_liars_loss_does_not_decide_a_defended_line_search(data):
    """What the report says and what the second look hears are clipped alike."""

    def look(report, losses):
        return jnp.zeros(5).at[report.ids].set(report.loss)

    liar = [ff.faults.inflate_loss(np.arange(5) == 4, factor=1000.0)]
    settings = {"faults": liar, "selector": EVERYBODY}
    heard = one_round(data, ff.defences.clip_losses(remembered(look), 3.0), **settings)[2].aggregator
    assert_allclose(heard[4], 3 * np.median(heard), rtol=1e-5)


def test_transforms_hear_clipped_losses(data):
    """FedLF's guidance comes from its transform."""
    liar = [ff.faults.inflate_loss(np.arange(5) == 4, factor=1000.0)]
    settings = {"faults": liar, "selector": EVERYBODY}
    free = one_round(data, ff.fedlf(), **settings)[2].params
    defended = one_round(data, ff.defences.clip_losses(ff.fedlf(), 1.5), **settings)[2].params
    assert max(float(jnp.abs(a - b).max()) for a, b in zip(jax.tree.leaves(free), jax.tree.leaves(defended))) > 1e-3


def test_clipped_losses_are_clipped_in_the_second_look_too(data):
    def look(report, losses):
        return losses(jax.tree.map(lambda u: 0 * u[0], report.updates), jnp.arange(5))

    liar = [ff.faults.inflate_loss(np.arange(5) == 4, factor=1000.0)]
    heard = one_round(data, ff.defences.clip_losses(remembered(look), 3.0), faults=liar)[2].aggregator
    assert_allclose(heard[4], 3 * np.median(heard), rtol=1e-5)
