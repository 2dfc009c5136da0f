"""Which signals a rule reads: neither one too few nor one too many."""

import jax
import jax.numpy as jnp
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.reads import FREE
from fedjax_fair.types import Aggregator, Method, Report, Selector

SIGNALS = tuple(name for name in Report._fields if name not in (*FREE, "message"))  # which few clients send

TABLE = {
    "fedavg": ("n",),
    "fedsgd": ("n",),
    "fedprox": ("n",),
    "qfedavg": ("loss", "gram"),
    "qfedsgd": ("train_loss", "gram"),
    "afl": ("loss",),
    "term": ("n", "loss"),
    "fedmgda_plus": ("gram",),
    "fedfv": ("loss", "gram"),
    "propfair": ("n",),
    "fedmaba": ("loss",),
    "aaggff_s": ("loss",),
    "aaggff_d": ("loss",),
    "pg_ffl": ("n", "loss", "accuracy", "updates"),
    "fedeba": ("loss",),
    "loss_proportional": ("loss",),
    "loss_softmax": ("loss",),
    "size_softmax": ("n",),
    "reweighted": ("loss",),
    "fednova": ("n", "steps"),
    "scaffold": ("message",),
    "feddyn": ("updates",),
    "ditto": ("n",),
    "apfl": ("n",),
    "fedper": ("n",),
    "fedrep": ("n",),
    "fedmdfg": ("loss", "gram"),
    "gifair": ("loss",),
    "superquantile": ("n", "loss"),
    "adafed": ("loss", "gram"),
    "fairmoo": ("loss", "gram"),
    "drfl": ("loss",),
    "fedlf": ("loss", "updates"),
    "fedheal": ("updates",),
    "drfa": ("steps", "message"),
    "fedeba_plus": ("loss", "message"),
}

OTHER_CHOICES = {  # settings that change what is read
    "fedavg": (ff.fedavg("uniform"), ()),
    "propfair": (ff.propfair(weighting="uniform"), ()),
    "term-uniform": (ff.term(weighting="uniform"), ("loss",)),
    "term-authors": (ff.term(variant="authors"), ("loss",)),
    "fedmgda_plus": (ff.fedmgda_plus(prior="size"), ("n", "gram")),
    "fedfv": (ff.fedfv(tau=2), ("loss", "gram", "updates")),
    "fedeba": (ff.fedeba(prior="size"), ("n", "loss")),
    "reweighted": (ff.reweighted(weighting="size"), ("n", "loss")),
    "pg_ffl": (ff.pg_ffl(deterministic=True), ("n", "loss", "accuracy", "updates")),
    "fedmdfg": (ff.fedmdfg(line_search=2), ("loss", "gram", "updates")),
    "gifair-rate": (ff.gifair(reading="rate"), ("train_loss",)),
    "fedeba_plus": (ff.fedeba_plus(prior="size"), ("n", "loss", "message")),
    "scaffold-fedmaba": (ff.scaffold(aggregator=ff.fedmaba()), ("loss", "message")),
    "ditto-fedmaba": (ff.ditto(aggregator=ff.fedmaba()), ("loss",)),
}

FEEDBACK = {
    "uniform": (),
    "size_proportional": (),
    "pow_d": (),
    "cpow_d": (),
    "rpow_d": ("train_loss",),
    "ucb_cs": ("train_loss", "train_loss_std"),
}


def rule_that(look) -> Aggregator:
    """A rule whose coefficients depend on whatever ``look(report)`` returns."""

    def weigh(state, report, key):
        seen = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(look(report)))
        return jnp.ones(report.ids.shape) / report.ids.size + 0.0 * seen, state

    return Aggregator(lambda sizes, key=None: (), weigh)


@pytest.mark.parametrize("name", registry.AGGREGATORS)
def test_registered_rules(name):
    assert ff.reads(registry.make_rule(name, learning_rate=0.1)) == TABLE[name]


@pytest.mark.parametrize(("rule", "read"), OTHER_CHOICES.values(), ids=OTHER_CHOICES)
def test_settings_that_change_what_a_rule_reads(rule, read):
    assert ff.reads(rule) == read


@pytest.mark.parametrize("name", registry.SELECTORS)
def test_registered_selectors(name):
    settings = {"d": 3} if name in ("pow_d", "cpow_d") else {}
    assert ff.reads(ff.afl(), registry.SELECTORS[name](2, **settings)) == ("loss", *FEEDBACK[name])


@pytest.mark.parametrize(
    ("look", "read"),
    [
        (lambda report: None, ()),
        (lambda report: (report.ids, report.active), ()),
        (lambda report: report.accuracy, ("accuracy",)),
        (lambda report: (report.gram, report.n), ("n", "gram")),
        (lambda report: report[3], ("loss",)),
        (lambda report: report[8], ("updates",)),
        (lambda report: report[3:6], ("loss", "train_loss", "train_loss_std")),
        (lambda report: getattr(report, "train_loss_std"), ("train_loss_std",)),  # noqa: B009
        (lambda report: [*report], SIGNALS),
        (lambda report: jnp.where(report.active, report.loss, 0).sum(), ("loss",)),
        (lambda report: report._replace(loss=0.0).accuracy, ("accuracy",)),
        (jax.tree.leaves, SIGNALS),
        (lambda report: jax.jit(lambda r: r.loss)(report), ("loss",)),
        (lambda report: jax.lax.fori_loop(0, 2, lambda i, x: x + report.loss, report.n), ("n", "loss")),
    ],
)
def test_every_way_of_looking(look, read):
    assert ff.reads(rule_that(look)) == read


def test_looking_without_using_is_not_reading():
    def look(report):
        ids, n, active, *rest = report
        del ids, n, active, rest
        return report.accuracy * 0, report.loss.dtype.itemsize

    assert ff.reads(rule_that(lambda report: look(report)[1])) == ()


def test_a_wrapper_reads_what_it_and_its_inner_rule_read():
    def clipped(inner: Aggregator) -> Aggregator:
        def weigh(state, report, key):
            return inner.weigh(state, report._replace(loss=jnp.minimum(report.loss, 3)), key)

        return Aggregator(inner.init, weigh)

    assert ff.reads(clipped(ff.afl())) == ("loss",)
    assert ff.reads(clipped(ff.fedavg())) == ("n",)  # which takes no notice of the loss
    assert ff.reads(clipped(ff.qfedavg(lipschitz=1.0))) == ("loss", "gram")


def test_a_signal_that_there_is_none_of_is_told_the_nearest():
    with pytest.raises(
        AttributeError, match=r"^report has no signal 'losss', only ids, .*; did you mean 'loss'\?$"
    ):
        ff.reads(rule_that(lambda report: report.losss))
    with pytest.raises(AttributeError, match=r"^'int' object has no attribute 'losss'"):
        ff.reads(rule_that(lambda report: (3).losss))


def test_a_selectors_feedback_counts():
    def observe(state, report):
        return state + report.train_loss.sum()

    listening = Selector(lambda sizes, key=None: jnp.zeros(()), lambda *_: None, observe, 2)
    assert ff.reads(ff.afl(), listening) == ("loss", "train_loss")
    assert ff.reads(ff.afl(), ff.uniform(2)) == ("loss",)


def test_a_transforms_report_counts():
    def update(updates, state, params=None, *, report, **sent):
        return jax.tree.map(lambda u: u * report.accuracy.mean(), updates), state

    transform = optax.GradientTransformationExtraArgs(lambda params: (), update)
    method = Method(ff.fedavg(), transform=transform)
    assert ff.reads(method) == ("n", "accuracy")
    assert ff.reads(method, params={"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}) == ("n", "accuracy")


def test_nothing_is_computed_and_the_cohort_is_tried():
    def look(report):
        assert isinstance(report.loss, jax.core.Tracer)
        assert report.loss.shape == (4,)
        assert report.updates["w"].shape == (4, 3, 2)
        return report.loss, report.updates

    params = {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)}
    assert ff.reads(rule_that(look), n_clients=10, cohort=4, params=params) == ("loss", "updates")
    with pytest.raises(ValueError, match="aaggff_d"):
        ff.reads(ff.aaggff_s(), n_clients=10, cohort=4)
