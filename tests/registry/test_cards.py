"""What ``list`` and the docs say of every rule, selector, objective, model and partition."""

import re
from pathlib import Path

import pytest

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.cli.commands import main
from fedjax_fair.cli.components import DATASETS
from fedjax_fair.registry.cards import GROUPS, as_markdown, as_text, card, cards
from fedjax_fair.registry.grids import GRIDS

EVERYTHING = {name: factory for group in GROUPS.values() for name, factory in group.items()}
PAGE = Path(__file__).parents[2] / "docs" / "reference.md"


@pytest.mark.parametrize("name", registry.AGGREGATORS)
def test_a_rule_says_what_it_optimises_reads_and_where_it_is_from(name):
    made = card(EVERYTHING[name])
    assert made.optimises.endswith(".")
    assert made.reads
    assert len(made.source) > 20


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_setting_is_explained(name):
    made = card(EVERYTHING[name])
    assert made.summary.endswith(".")
    assert [setting for setting, (_, meaning) in made.settings.items() if len(meaning) < 2] == []


def test_the_signals_are_those_of_the_traced_program():
    assert card(EVERYTHING["qfedavg"]).reads == ("loss", "gram")
    assert card(EVERYTHING["ucb_cs"]).reads == ("train_loss", "train_loss_std")
    assert card(EVERYTHING["uniform"]).reads == card(EVERYTHING["mlp"]).reads == ()


def test_list_prints_every_card_within_the_terminals_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main(["list"])
    printed = capsys.readouterr().out
    words = " ".join(printed.split())
    for group in cards().values():
        for made in group:
            for text in (made.optimises, made.source, *(meaning for _, meaning in made.settings.values())):
                assert "".join(text.split()) in words.replace(" ", "")  # wrapped, but nothing is cut
    for names in (DATASETS, registry.LOSSES, registry.METRICS):  # below the cards
        assert ", ".join(names) in words
    assert max(map(len, printed.splitlines())) <= 80


def test_list_of_one_name_prints_one_card(capsys):
    main(["list", "afl"])
    printed = capsys.readouterr().out
    assert printed.startswith("Rules\nafl: ")
    assert "FedMABA's tables use {.01, .1, .5, .7}" in " ".join(printed.split())
    assert "fedavg" not in printed


OWN = '''
import fedjax_fair as ff


def by_loss(power=1.0):
    """Clients with larger losses count more.

    Optimises: the loss, to a power.

    Args:
      power: of the loss; 0 is the mean.
    """
    return ff.Aggregator(lambda sizes, key: (), lambda state, report, key: (report.loss**power, state))


def no_words(share, weighting="size"):
    return ff.fedavg(weighting)
'''


def test_list_prints_the_card_of_a_rule_of_ones_own(tmp_path, capsys):
    file = tmp_path / "my_rules.py"
    file.write_text(OWN)
    main(["list", "afl", f"{file}:by_loss", f"{file}:no_words"])
    stock, own = capsys.readouterr().out.split("Rules of your own\n")
    assert stock.startswith("Rules\nafl: ")
    with_words, without = " ".join(own.split()).split(f"{file}:no_words: ")
    assert with_words == (
        f"{file}:by_loss: Clients with larger losses count more. optimises the loss, to a power. "
        "reads loss power = 1.0 of the loss; 0 is the mean. "
    )
    assert without == "it has no docstring share = required weighting = size"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_rules.py", "rule {}my_rules.py needs the name of a rule in it"),
        ("my_rules.py:by_los", "did you mean 'by_loss'?"),
        ("fedmabba", "did you mean 'fedmaba'?"),
    ],
)
def test_list_says_what_is_wrong_with_a_name(name, sentence, tmp_path, capsys):
    (tmp_path / "my_rules.py").write_text(OWN)
    folder = f"{tmp_path}/" if ".py" in name else ""
    with pytest.raises(SystemExit):
        main(["list", folder + name])
    assert sentence.format(folder) in capsys.readouterr().err


def test_a_card_without_anything_to_say_is_its_summary():
    assert as_text(card(EVERYTHING["iid"])._replace(settings={}, source=""), 100).count("\n") == 0


def test_the_page_of_the_docs_is_what_the_registry_writes(capsys):
    main(["list", "--markdown"])
    assert capsys.readouterr().out == as_markdown() == PAGE.read_text(), (
        "write it anew: fedjax-fair list --markdown > docs/reference.md"
    )


def test_the_tables_of_the_page_have_a_row_for_everything_and_even_columns():
    tables = [[row for row in part.splitlines() if row.startswith("|")] for part in as_markdown().split("## ")[1:]]
    grids = 1 + len(GRIDS)  # and that of any other rule
    assert [len(table) - 2 for table in tables] == [*(len(group) for group in GROUPS.values()), grids]
    for table in tables:
        assert len({row.replace(r"\|", "").count("|") for row in table}) == 1


def test_the_grids_of_tune_are_in_the_tables_and_on_the_cards(capsys):
    rows = as_markdown().partition("## Tuning grids")[2]
    assert "| `term` | `t`: 0.1, 0.5, 1, 10 | 0.032, 0.1, 0.32 |" in rows
    assert "| `fedmaba` | `alpha`: 0.5, 0.8; `eta_b`: 0.1, 0.5 | 0.032, 0.1, 0.32 |" in rows
    assert "none | 0.015, 0.022, 0.032, 0.046, 0.068, 0.1, 0.15, 0.22, 0.32, 0.46, 0.68, 1 |" in rows
    main(["list", "term", "fedavg"])
    fedavg, term = " ".join(capsys.readouterr().out.split()).split("term: ")
    assert "with --tune" not in fedavg
    assert "with --tune t: 0.1, 0.5, 1, 10" in term


@pytest.fixture(scope="module")
def heard():
    """By rule and by selector, the signals that it reads."""
    rules = {name: registry.make_rule(name, learning_rate=0.1) for name in registry.AGGREGATORS}
    selectors = {name: factory(2) for name, factory in registry.SELECTORS.items()}
    by_selectors = {name: ff.reads(ff.fedavg(), s, n_clients=4, cohort=2) for name, s in selectors.items()}
    return {name: ff.reads(rule, n_clients=4) for name, rule in rules.items()} | by_selectors


@pytest.mark.parametrize("signal", ["loss", "train_loss", "train_loss_std", "accuracy"])
def test_the_page_on_losses_names_exactly_the_rules_that_read_each(signal, heard):
    page = (Path(__file__).parents[2] / "docs" / "losses.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `report.{signal}` |")]
    named = set(re.findall(r"`(\w+)`", row.split("|")[4]))
    assert named == {name for name, signals in heard.items() if signal in signals}
