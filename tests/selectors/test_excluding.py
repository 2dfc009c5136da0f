"""Clients that are never trained on: the selector sees a federation of the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from contract import make_context, make_report

import fedjax_fair as ff
from fedjax_fair import registry

LEFT_OUT = (1, 4)
STAY = [0, 2, 3, 5, 6, 7]
SIZES = (3, 80, 5, 4, 90, 7, 3, 4)


@pytest.fixture(scope="module")
def data():
    return toy.federation(SIZES)


@pytest.mark.parametrize("name", registry.SELECTORS)
def test_the_left_out_are_never_asked_and_the_others_go_on_as_among_themselves(data, name, quick_to_compile):
    asked = []

    def watching(selector):
        def select(state, key, context):
            def probe(ids, *more, **named):
                jax.debug.callback(lambda ids: asked.extend(np.asarray(ids).tolist()), ids)
                return context.probe(ids, *more, **named)

            return selector.select(state, key, context._replace(probe=probe))

        return selector._replace(select=select)

    sim = toy.simulation(data, selector=watching(ff.excluding(LEFT_OUT, registry.SELECTORS[name](3))))
    _, infos = toy.play(sim, rounds=5)
    jax.effects_barrier()
    played = {int(k) for info in infos for k in info.ids}
    assert played <= set(STAY)
    assert set(asked) <= set(STAY)


@pytest.mark.parametrize("name", ["uniform", "size_proportional", "ucb_cs"])
def test_it_is_the_selector_on_the_others_renumbered(name):
    """Draws, feedback and states."""
    inner = registry.SELECTORS[name](3)
    outer = ff.excluding(np.array(LEFT_OUT), inner)
    sizes = jnp.asarray(SIZES, jnp.float32)
    mine, theirs = outer.init(sizes, toy.KEY), inner.init(sizes[jnp.array(STAY)], toy.KEY)
    for turn in range(4):
        key = jax.random.fold_in(toy.KEY, turn)
        ids, mine = outer.select(mine, key, make_context(8, turn))
        inside, theirs = inner.select(theirs, key, make_context(6, turn))
        assert ids.tolist() == [STAY[i] for i in inside.tolist()]
        report = make_report(turn, ids)
        mine, theirs = outer.observe(mine, report), inner.observe(theirs, report._replace(ids=inside))
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)


@pytest.mark.parametrize("given", [(0, -1, 2), (0, 0, 2), (0, -1, -1), (5, 4, 3), (-1, -1, 5)])
def test_the_selector_inside_hears_of_distinct_clients_of_its_own(data, given):
    """Also where it leaves slots empty, which hold clients that are left out."""

    def select(state, key, context):
        return jnp.array(given), state

    def observe(heard, report):
        return jnp.stack([report.ids, report.active.astype(int)])

    inner = ff.Selector(lambda sizes, key=None: jnp.zeros((2, 3), int), select, observe, 3)
    sim = toy.simulation(data, selector=ff.excluding((0, 1), inner))
    (ids, active), real = jax.jit(sim.step)(sim.init(toy.KEY), sim.data)[0].selector, {}
    for slot, k in enumerate(given):
        real.setdefault(k, slot)
    assert len({*ids.tolist()}) == 3
    assert set(ids.tolist()) <= {*range(6)}
    mine = [slot for k, slot in real.items() if k >= 0]
    assert active.tolist() == [slot in mine for slot in range(3)]
    assert [int(ids[slot]) for slot in mine] == [given[slot] for slot in mine]


def test_newcomers_are_scored_apart(data, quick_to_compile):
    sim = toy.simulation(data, ff.fedavg(), selector=ff.excluding(LEFT_OUT, ff.uniform(3)))
    _, history = ff.run(sim, 0, 2)
    newcomers = np.isin(np.arange(len(SIZES)), LEFT_OUT)
    printed = []
    for clients in (newcomers, ~newcomers):
        row = next(line for line in ff.table({"fedavg": history}, clients=clients).splitlines() if "fedavg" in line)
        printed.append(row.split()[1])
        assert printed[-1] == f"{100 * history.accuracy[-1, clients].mean():.1f}"
    assert printed[0] != printed[1]


def test_drfa_which_asks_anybody_is_refused(data):
    with pytest.raises(ValueError, match=r"its mixture would gather on clients who never train, got ff.excluding"):
        toy.simulation(data, ff.drfa(sampling="selector"), selector=ff.excluding(LEFT_OUT, ff.uniform(3)))


@pytest.mark.parametrize("method", [ff.scaffold(), ff.feddyn(0.1)], ids=["scaffold", "feddyn"])
def test_a_method_that_divides_by_all_clients_is_refused(data, method):
    told = "(scaffold|feddyn) divides by all clients, also those who never train, got ff.excluding"
    with pytest.raises(ValueError, match=told):
        toy.simulation(data, method, selector=ff.excluding(LEFT_OUT, ff.uniform(3)))
    toy.simulation(data, method, selector=ff.uniform(3))


@pytest.mark.parametrize(
    ("ids", "inside", "sentence"),
    [
        ([1, 1], ff.uniform(2), "ids must be different clients' whole numbers, got [1, 1]"),
        ([], ff.uniform(2), "ids must be different clients' whole numbers, got []"),
        (3, ff.uniform(2), "ids must be different clients' whole numbers, got 3"),
        ([[1], [2, 3]], ff.uniform(2), "ids must be different clients' whole numbers, got [[1], [2, 3]]"),
        ([0.5], ff.uniform(2), "ids must be different clients' whole numbers, got [0.5]"),
        ([8], ff.uniform(2), "excluding takes ids from 0 to 7, got 8 to 8"),
        ([1, 4], ff.uniform(7), "the cohort m must be from 1 to the 6 clients not excluded, got 7"),
        ([1], 3, "selector must be a Selector, such as ff.uniform(10), got int"),
    ],
)
def test_a_wrong_call_is_one_sentence(data, ids, inside, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        toy.simulation(data, selector=ff.excluding(ids, inside))
    assert str(error.value) == sentence
