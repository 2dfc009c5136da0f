"""What is said of rows of a comparison whose names do not say it."""

from functools import partial

import fedjax_fair as ff
from fedjax_fair.results.rows import rows_of


def mild(q=0.5):
    return ff.qfedavg(q=q, lipschitz=10.0)


def loose(**settings):
    return mild(settings["q"])


def test_factories_tell_the_settings_that_their_row_was_given():
    rules = {
        "fair": partial(ff.qfedavg, 5.0, lipschitz=10.0),
        "qfedavg": partial(ff.qfedavg, q=5.0),
        "tilted": ff.term,
        "some": mild,
        "mild": mild,
        "short": lambda q=2.0: mild(q),
        "inside": partial(ff.ditto, aggregator=ff.fedmaba()),
        "within": partial(ff.ditto, 0.5, aggregator=partial(ff.term, t=2.0)),
        "any": partial(loose, q=0.2, name="x"),
    }
    assert rows_of(rules, {}) == {
        "fair": "is qfedavg(q=5, lipschitz=10)",
        "qfedavg": "has q=5",
        "tilted": "is term",
        "some": "is mild(q=0.5)",
        "mild": "has q=0.5",
        "short": "has q=2",
        "inside": "is ditto(aggregator=a rule)",
        "within": "is ditto(lam=0.5, aggregator=term(t=2))",
        "any": "is loose(q=0.2, name=x)",
    }


def test_nothing_is_said_of_rules_that_are_made_and_of_settings_that_are_chosen():
    rules = {"made": ff.afl(), "term": ff.term, "some": mild, "needy": lambda q: mild(q)}
    assert rows_of(rules, {"some": {"q": [1.0]}, "needy": {"q": [1.0]}}) == {}
