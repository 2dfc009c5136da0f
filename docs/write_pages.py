"""Pages that Sphinx makes of docstrings and studies before it reads the others: algorithms/ and papers/."""

import inspect
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # benchmarks is no part of the installed package

from benchmarks.papers.studies import RESULTS, STUDIES  # noqa: E402
from fedjax_fair import registry  # noqa: E402
from fedjax_fair.registry.cards import Card, card  # noqa: E402

JUDGED_BY = {
    "fedavg": ("frontier", "tuned-frontier"),
    "fedsgd": ("frontier",),
    "fedprox": ("frontier",),
    "qfedavg": ("tuned-frontier", "frontier", "qffl-open-question", "fmnist3", "when-clients-lie", "shakespeare"),
    "qfedsgd": ("qffl-synthetic", "frontier"),
    "afl": ("tuned-frontier", "fedmaba-table2-fmnist", "fmnist3", "when-clients-lie"),
    "term": ("tuned-frontier", "fedmaba-table2-fmnist"),
    "fedmgda_plus": ("tuned-frontier", "fedmaba-table2-fmnist"),
    "fedfv": ("frontier", "fmnist3"),
    "propfair": ("tuned-frontier", "fedmaba-table2-fmnist"),
    "fedmaba": (
        *("tuned-frontier", "fedmaba-fig1", "fedmaba-fig2", "fedmaba-table2-fmnist", "fedmaba-table2-cifar10"),
        *("when-clients-lie", "personalised", "shakespeare"),
    ),
    "aaggff_s": ("aaggff-heart",),
    "aaggff_d": ("aaggff-heart", "when-clients-lie"),
    "pg_ffl": (
        "pgffl-table1",
        "pgffl-fig4",
        "pgffl-fig5",
        "pgffl-reachable",
        "pgffl-reweighted",
        "pgffl-trained",
        "pgffl-carried",
    ),
    "fedeba": ("tuned-frontier",),
    "loss_proportional": ("frontier",),
    **dict.fromkeys(("fedmdfg", "gifair", "superquantile", "adafed", "fairmoo", "drfl"), ("tuned-shelf",)),
    **dict.fromkeys(("fedlf", "fedheal", "drfa", "fedeba_plus"), ("tuned-shelf",)),
    **dict.fromkeys(("ditto", "fedper"), ("personalised",)),
    **dict.fromkeys(("uniform", "pow_d", "rpow_d", "ucb_cs"), ("ucbcs-table1", "ucbcs-fig1", "ucbcs-fig3")),
}
"""The studies that test an algorithm's claims, by its name; an algorithm without any is not judged here."""

PAIRED = {"accuracy": ("accuracy", 1), "worst10": ("worst tenth", 1), "variance": ("variance", 0)}
RULE_PICTURE = """Ten clients, all of them in every round, default settings. Left: round 10; a dot's area is the
   client's number of examples. Right: every round. Dark is a high received loss in round 10."""
SELECTOR_PICTURE = """Thirty clients, five a round, default settings. Left: how often each was selected; the line
   is an equal share. Right: every round's cohort."""


def write() -> None:
    """Write all pages; those that are as they were keep their date, so that Sphinx reads them no more."""
    keep(DOCS / "algorithms", dict(algorithm_pages()))
    keep(DOCS / "papers", dict(study_pages()))
    for picture in RESULTS.glob("*.png"):
        copy = DOCS / "papers" / picture.name
        if not copy.exists() or copy.read_bytes() != picture.read_bytes():
            shutil.copy(picture, copy)


def keep(folder: Path, pages: dict[str, str]) -> None:
    """Make the texts of a folder these."""
    folder.mkdir(exist_ok=True)
    for old in [*folder.glob("*.md"), *folder.glob("*.rst")]:
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def groups() -> dict[str, list[Callable[..., Any]]]:
    """The factories that have a page, by heading."""
    rules = [*registry.AGGREGATORS.values()]
    return {
        "Rules": [rule for rule in rules if ".methods." not in rule.__module__],
        "Methods of clients that remember": [rule for rule in rules if ".methods." in rule.__module__],
        "Selectors": [*registry.SELECTORS.values()],
    }


def algorithm_pages() -> Iterator[tuple[str, str]]:
    """``(file, text)`` of the index and of every algorithm's page, in reStructuredText, as docstrings are."""
    lines = [
        *headed("Algorithms", "="),
        "Every rule, method and selector has a page: its formula, its arguments, a picture of whom it prefers,",
        "and what the :doc:`studies </papers/index>` found. The pages are made of the docstrings.",
        "",
        "All pictures are of Synthetic(1, 1), seed 4, and softmax regression with one local epoch in batches of",
        "50 at rate .1, for 60 rounds. ``python docs/draw_coefficients.py`` draws them.",
        "",
    ]
    for title, factories in groups().items():
        lines += [*headed(title, "-"), ".. list-table::", "   :header-rows: 1", "   :widths: 22 50 20 8", ""]
        lines += ["   * - name", "     - what it does", "     - reads", "     - year"]
        for factory in factories:
            known = card(factory)
            reads = ", ".join(f"``{signal}``" for signal in known.reads)
            year = next(iter(re.findall(r"\b(?:19|20)\d\d\b", known.source)), "")
            lines += [f"   * - :doc:`{known.name}`", f"     - {known.summary}", f"     - {reads}", f"     - {year}"]
            yield f"{known.name}.rst", algorithm_page(factory, known)
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {factory.__name__}" for factory in factories), ""]
    yield "index.rst", "\n".join(lines)


def algorithm_page(factory: Callable[..., Any], known: Card) -> str:
    """One algorithm: what it does, an example, formula, arguments, picture, verdicts and source."""
    pages = "|".join([*registry.AGGREGATORS, *registry.SELECTORS])
    said = sections(re.sub(rf":func:`({pages})`", r":doc:`\1`", inspect.getdoc(factory) or ""))
    selects = known.name in registry.SELECTORS
    lines = [*headed(known.name, "="), said.pop("summary"), "", *example(known, selects)]
    lines += [*headed("What it computes", "-"), said.pop("body"), ""]
    lines += ["**Optimises:** " + said.pop("Optimises"), ""] if "Optimises" in said else []
    if known.settings:
        lines += headed("Arguments", "-")
        for name, text in arguments(said.pop("Args")).items():
            default = known.settings[name][0]
            given = "required" if default == "required" else f"by default {default}"
            lines += [f"``{name}``, {given}", *(f"   {line}" for line in text), ""]
    lines += ["**Raises** " + said.pop("Raises"), ""] if "Raises" in said else []
    lines += headed("Whom it selects" if selects else "Its coefficients", "-")
    caption = SELECTOR_PICTURE if selects else RULE_PICTURE
    lines += [
        f".. figure:: ../figures/{known.name}.png",
        f"   :alt: {known.name} on ten clients",
        "",
        f"   {caption}",
        "",
    ]
    lines += [*headed("What the studies say", "-"), *verdicts(known.name), ""]
    lines += [*headed("Source", "-"), said.pop("Source", "No paper."), "", *said.values(), ""]
    return "\n".join(lines)


def headed(text: str, line: str) -> list[str]:
    """A heading."""
    return [text, line * len(text), ""]


def sections(text: str) -> dict[str, str]:
    """A docstring by its parts: summary, body, and what follows a marked word, in the order in which it stands."""
    summary, _, rest = text.partition("\n\n")
    said = {"summary": summary, "body": ""}
    for part in re.split(r"\n\n(?=\S)", rest):
        mark = re.match(r"(Args|Raises|Optimises|Source):\s*|Differs |The authors' code \(", part)
        if mark is None:
            if "Source" in said or "Raises" in said:
                said[f"more {len(said)}"] = part + "\n"
            else:
                said["body"] += part + "\n\n"
        elif mark[1] is None:
            title, _, listed = part.partition(":\n  1. ")
            said[f"more {len(said)}"] = title + (f":\n\n{inspect.cleandoc('  1. ' + listed)}\n" if listed else "\n")
        else:
            said[mark[1]] = part[mark.end() :] if mark[1] == "Args" else inspect.cleandoc(part[mark.end() :])
    return said


def arguments(text: str) -> dict[str, list[str]]:
    """``Args:`` by argument, its lines without the indentation."""
    found: dict[str, list[str]] = {}
    for line in inspect.cleandoc(text).splitlines():
        name = re.match(r"(\w+): ", line)
        if name:
            found[last := name[1]] = [line[name.end() :]]
        else:
            found[last].append(line.strip())
    return found


def example(known: Card, selects: bool) -> list[str]:
    """Three statements that train with it, and the command that compares it."""
    needed = ", ".join(
        f"{name}={'10.0' if name == 'lipschitz' else 3}"
        for name, (default, _) in known.settings.items()
        if default == "required"
    )
    made = f"ff.{known.name}({needed})"
    parts = ["aggregator=ff.fedavg()", f"selector={made}"] if selects else [f"aggregator={made}"]
    parts += ["trainer=ff.local_sgd(optax.sgd(0.1), batch_size=50)"]
    named = f"fedavg fedavg@{known.name}" if selects else f"fedavg {known.name}"
    return [
        ".. code-block:: python",
        "",
        "   import fedjax_fair as ff",
        "   import optax",
        "",
        "   data = ff.data.synthetic(n_clients=10, alpha=1.0, beta=1.0, seed=0)",
        "   sim = ff.simulation(",
        "       ff.models.logistic_regression(),",
        "       data,",
        *(f"       {part}," for part in parts),
        "   )",
        "   state, history = ff.run(sim, 0, rounds=20)",
        "",
        "From a terminal:",
        "",
        ".. code-block:: sh",
        "",
        f"   fedjax-fair compare --algorithms {named}",
        "",
    ]


def verdicts(name: str) -> list[str]:
    """A line per study, with its verdict, and the algorithm's own row where rules were tuned."""
    lines = []
    for study in JUDGED_BY.get(name, ()):
        found = re.search(r"\*\*(.*?)\*\*", verdict_of(study))
        lines.append(f"* :doc:`/papers/{study}`" + (f": *{found[1].rstrip('.')}.*" if found else ""))
        lines += [f"  {row}" for row in own_row(study, name)]
    return lines or ["None of our studies tests it yet."]


def verdict_of(study: str) -> str:
    """The study's cell in the table of the papers' page: the one place where the verdict stands."""
    table = (RESULTS.parent / "README.md").read_text()
    found = re.search(rf"^\| `{study}` \| (.*) \|$", table, re.MULTILINE)
    if found is None:
        raise ValueError(f"benchmarks/papers/README.md has no row for the study {study}")
    return found[1]


def own_row(study: str, name: str) -> list[str]:
    """The paired differences of one rule, where the study keeps them."""
    kept = json.loads((RESULTS / f"{study}.json").read_text()) if (RESULTS / f"{study}.json").exists() else {}
    of = kept.get("differences", {}).get(name)
    if of is None:
        return []
    cells = [
        f"{called} {of[measure]['mean']:+.{digits}f} "
        f"[{of[measure]['low']:+.{digits}f}, {of[measure]['high']:+.{digits}f}]"
        f"{'*' if of[measure]['holm'] < 0.05 else ''}"
        for measure, (called, digits) in PAIRED.items()
    ]
    return [f"Tuned {name} minus tuned {kept['baseline']}: {'; '.join(cells)} (\\* p < .05 after Holm)."]


def study_pages() -> Iterator[tuple[str, str]]:
    """``(file, text)`` of the papers' page and of every study's, in Markdown."""
    text = (RESULTS.parent / "README.md").read_text()
    text = re.sub(r"\]\(results\)", "](#the-papers-tables-repeated-and-judged)", text)
    text = re.sub(r"\]\(results/([\w-]+\.(?:md|png))\)", r"](\1)", text)
    text = re.sub(rf"^\| `({'|'.join(STUDIES)})` \|", r"| [\1](\1.md) |", text, flags=re.MULTILINE)
    text = text.replace("](results/", "](../../benchmarks/papers/results/")
    yield "index.md", text + "\n```{toctree}\n:hidden:\n\n" + "\n".join(STUDIES) + "\n```\n"
    for name, study in STUDIES.items():
        verdict = re.sub(r",? *\[(?:Table|Figure|table|figure)\]\([^)]*\)|See below\. *", "", verdict_of(name))
        results = RESULTS / f"{name}.md"
        body = results.read_text() if results.exists() else ""
        again = f"`fedjax-fair reproduce {name}` repeats it ({study.cost} on two cores)."
        more = "[All studies](index.md), with the settings and what else was found."
        title = study.what[0].upper() + study.what[1:]
        yield f"{name}.md", f"# {title}\n\n{verdict.strip()}\n\n{again} {more}\n\n{body}"
