"""Settings from signatures and TOML: what is written is read back, what is wrong is named."""

import contextlib
import dataclasses
import tomllib
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_fair import registry
from fedjax_fair.cli.experiment import argument_help, experiment_class, factories, settings_class
from fedjax_fair.cli.plan import parse_rule, prepare, prepare_sweep
from fedjax_fair.cli.rule_syntax import check_unnamed, row_name
from fedjax_fair.cli.toml import dump_toml, load_toml
from fedjax_fair.cli.unused import needless

Compare = experiment_class("Compare", [("algorithms", tuple[str, ...], ("fedavg",))], "A comparison.")


def written(tmp_path, table):
    path = tmp_path / "settings.toml"
    path.write_text(tomli_w.dumps(table))
    return path


@pytest.mark.parametrize("name", registry.AGGREGATORS)
def test_every_hyper_parameter_of_a_rule_is_a_setting_with_its_default(name):
    factory = registry.AGGREGATORS[name]
    fields = {field.name: field.default for field in dataclasses.fields(settings_class(factory))}
    expected = {
        parameter: None if given_.default is given_.empty else given_.default
        for parameter, given_ in registry.settings_of(factory).items()
        if given_.default is given_.empty or not callable(given_.default)  # such as reweighted's phi: Python only
    }
    assert fields == expected


@pytest.mark.parametrize("name", factories())
def test_every_setting_can_be_written_and_read_back(name, tmp_path):
    """Other values than the defaults; None, which TOML lacks, is replaced by a value."""
    if not dataclasses.fields(settings_class(factories()[name])):
        assert not hasattr(Compare(), name)
        return
    group, changed = getattr(Compare(), name), {}
    for field in dataclasses.fields(group):
        old, kind = getattr(group, field.name), get_args(field.type)[0]
        if get_origin(kind) is Literal:
            changed[field.name] = get_args(kind)[-1]
        elif isinstance(old, bool):
            changed[field.name] = not old
        elif isinstance(old, tuple):
            changed[field.name] = tuple(2 * v for v in old)
        else:
            changed[field.name] = (next(t for t in (*get_args(kind), kind)) if old is None else type(old))(3)
    settings = Compare(**{name: dataclasses.replace(group, **changed)})
    path = tmp_path / "settings.toml"
    path.write_text(dump_toml(settings))
    assert dataclasses.asdict(load_toml(path, Compare())) == dataclasses.asdict(settings)


def test_an_optional_number_is_a_number():
    """``Array | float | None`` is no choice for a file or a flag: what is left of it is the number."""
    types = {field.name: get_args(field.type)[0] for field in dataclasses.fields(Compare().pg_ffl)}
    assert types["baseline"] == float | None


@pytest.mark.parametrize("name", factories())
def test_every_hyper_parameter_is_explained(name):
    help = argument_help(factories()[name])
    missing = [f.name for f in dataclasses.fields(settings_class(factories()[name])) if not help.get(f.name)]
    assert not missing


def test_what_is_written_is_read_back(tmp_path):
    changed = Compare(
        rounds=7,
        split=(0.7, 0.2, 0.1),
        out=Path("somewhere"),
        cohort=3,
        algorithms=("fedavg", "afl:lr=.5"),
        fedmaba=settings_class(registry.AGGREGATORS["fedmaba"])(alpha=0.25),
    )
    path = tmp_path / "settings.toml"
    path.write_text(dump_toml(changed))
    read = load_toml(path, Compare())
    assert dataclasses.asdict(read) == dataclasses.asdict(changed)


def test_an_integer_does_for_a_number(tmp_path):
    read = load_toml(written(tmp_path, {"lr": 1, "fedmaba": {"alpha": 1}}), Compare())
    assert (read.lr, read.fedmaba.alpha) == (1.0, 1.0)
    assert isinstance(read.lr, float)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"roundz": 3}, r"^setting in \S+ must be one of \d+ names, got 'roundz'; did you mean 'rounds'\?$"),
        ({"xyzzy": 3}, r"^setting in \S+ must be one of .*lr, .*, got 'xyzzy'$"),
        ({"rounds": 3.5}, "rounds in .* must be a whole number, got 3.5"),
        ({"rounds": True}, "rounds in .* must be a whole number, got True"),
        ({"rounds": "many"}, "rounds in .* must be a whole number, got 'many'"),
        ({"lr": "fast"}, "lr in .* must be a number, got 'fast'"),
        ({"split": [0.5, 0.5]}, r"split in .* must be 3 numbers, got \[0.5, 0.5\]"),
        ({"mlp": {"features": 3}}, r"features in \[mlp\] of .* must be a list of whole numbers, got 3"),
        ({"overwrite": 1}, "overwrite in .* must be true or false, got 1"),
        ({"out": 1}, "out in .* must be a path, got 1"),
        ({"test": "offical"}, "did you mean 'official'"),
        ({"fedmaba": {"alfa": 0.5}}, r"setting in \[fedmaba\] of .*did you mean 'alpha'"),
        ({"fedmaba": 3}, "fedmaba in .* must be a table of settings for fedmaba, got 3"),
        ({"algorithms": ["fedavg", 3]}, "algorithms in .* must be a word, got 3"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, table, message):
    with pytest.raises(ValueError, match=message):
        load_toml(written(tmp_path, table), Compare())


def test_a_file_that_is_not_toml(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("rounds = = 3")
    with pytest.raises(ValueError, match="is not valid TOML"):
        load_toml(path, Compare())
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not valid TOML"):
        load_toml(path, Compare())


JSONLIKE = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=4,
)
NAMES = st.sampled_from([field.name for field in dataclasses.fields(Compare)])


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(NAMES, JSONLIKE, max_size=3))
def test_any_toml_is_taken_or_refused_in_a_sentence(tmp_path_factory, table):
    path = written(tmp_path_factory.mktemp("fuzz"), table)
    with contextlib.suppress(ValueError):  # any other error fails the test
        assert isinstance(load_toml(path, Compare()), Compare)


def test_rules_with_settings():
    assert parse_rule("fedavg") == ("fedavg", {}, None, {})
    assert parse_rule("fedmaba:alpha=.8,eta-b=1")[:2] == ("fedmaba", {"alpha": 0.8, "eta_b": 1})
    assert parse_rule("aaggff_d:cdf=normal,variant=repo")[1] == {"cdf": "normal", "variant": "repo"}
    assert parse_rule("afl@uniform") == ("afl", {}, "uniform", {})
    assert parse_rule("afl:lr=1@pow_d:d=7") == ("afl", {"lr": 1}, "pow_d", {"d": 7})
    for broken in ("fedmaba:", "fedmaba:alpha", "fedmaba:=3", "fedmaba:alpha=", "afl@pow_d:", "afl@pow_d:d"):
        with pytest.raises(ValueError, match="algorithms takes name"):
            parse_rule(broken)
    with pytest.raises(ValueError, match="algorithms takes rule@selector"):
        parse_rule("afl@")


def test_a_row_may_have_a_name_before_its_rule():
    assert parse_rule("mild=qfedavg:q=1@pow_d:d=7") == parse_rule("qfedavg:q=1@pow_d:d=7")
    assert parse_rule("my rule = rules.py:mine:power=2")[:2] == ("rules.py:mine", {"power": 2})
    assert [row_name(text) for text in ("mild=qfedavg:q=1", "qfedavg:q=1", "afl@pow_d:d=7")] == [
        *("mild", "qfedavg:q=1", "afl@pow_d:d=7")
    ]


def test_a_path_with_an_equals_sign_is_no_name_of_a_row():
    path = "./a=b/rules.py:mine"
    assert row_name(f"{path}:power=2") == f"{path}:power=2"
    assert parse_rule(f"mild={path}:power=2")[:2] == parse_rule(f"{path}:power=2")[:2] == (path, {"power": 2})
    check_unnamed(path)
    with pytest.raises(ValueError, match=r"a path with = in it begins with \./$"):
        check_unnamed("a=b/rules.py:mine")
    with pytest.raises(ValueError, match=r"the name of a row is a word without : @ = , / and .*got 'my/rule=afl'$"):
        parse_rule("my/rule=afl")


def test_a_configuration_does_not_tell_of_what_the_run_had_none_of():
    """A table of eight hospitals is no Synthetic(1, 1) in shards of 30 clients."""
    own, synthetic = Compare(data="hospitals.csv"), Compare()
    assert needless(own, ("fedavg",)) >= {"dataset", "partition", "clients", "synthetic", "afl", "pow_d"}
    assert not needless(own, ("fedavg",)) & {"fedavg", "data", "lr"}
    assert not needless(synthetic, ("fedavg", "afl")) & {"dataset", "clients", "synthetic", "afl"}
    assert "clients" not in needless(Compare(data="hospitals.csv", clients=5), ("fedavg",))  # it was given


def test_a_configuration_does_not_tell_of_what_every_row_sets_for_itself():
    own = Compare(selector="pow_d:d=7")
    assert "qfedavg.q" in needless(own, ("fedavg", "qfedavg:q=2", "qfedavg:q=5,lipschitz=3"))
    assert "pow_d.d" in needless(own, ("fedavg", "afl@pow_d:d=9"))
    assert not {"qfedavg.q", "pow_d.d"} & needless(own, ("qfedavg", "qfedavg:q=2", "afl@pow_d"))
    assert "qfedavg.q" in needless(own, ("qfedavg",), ["q", "lr"])  # a grid's
    without = needless(own, ("qfedavg:q=2,lipschitz=3", "loss_softmax:temperature=2"))
    kept = tomllib.loads(dump_toml(own, without))
    assert not {"qfedavg", "loss_softmax"} & {*kept}


def test_a_run_of_one_rule_takes_no_name():
    for prepared in (lambda: prepare(Compare(), ("mine=afl",)), lambda: prepare_sweep(Compare(), "mine=afl", ())):
        with pytest.raises(ValueError, match=r"aggregator takes a rule alone, .* got 'mine=afl'"):
            prepared()
