"""The measured numbers as a Markdown table and a plot."""

import math
import statistics
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.speed.runner import OPPONENTS
from benchmarks.speed.workloads import WORKLOADS, flop

# Okabe and Ito's colours, which colour-blind readers tell apart.
COLOURS = {
    "ours": "#0072B2",
    "ours_split": "#56B4E9",
    "torch_loop": "#E69F00",
    "torch_vmap": "#F0E442",
    "fedjax": "#009E73",
    "pfl": "#CC79A7",
    "flower": "#D55E00",
    "floor": "#999999",
}
COLUMNS = (
    *("", "time per round", "times ours", "of the floor", "warm-up s", "set-up s", "loss after"),
    *("CPU time", "times ours"),
)


def reason(run: dict[str, Any]) -> str:
    """Why a process gave no time."""
    return f"not run: {run['not_run']}" if "not_run" in run else f"failed: {run['error']}"


def runs_of(results: dict[str, Any], workload: str, opponent: str) -> list[dict[str, Any]]:
    """All processes of an opponent on a workload."""
    return [r for r in results["runs"] if (r["workload"], r["opponent"]) == (workload, opponent)]


def seconds(runs: list[dict[str, Any]], of: str = "round_s") -> list[float]:
    """Seconds per round, or those of the CPU: the median of each process that was measured."""
    return [statistics.median(r[of]) for r in runs if "round_s" in r and of in r]


def floor_of(results: dict[str, Any], workload: str) -> float | None:
    """The fastest that the products alone were seen."""
    times = [t for r in runs_of(results, workload, "floor") for t in r.get("round_s", ())]
    return min(times, default=None)


def peak_of(results: dict[str, Any]) -> float | None:
    """The best FLOP/s of one large product that any process saw."""
    return max((f for r in results["runs"] for f in r.get("peak_flops", ())), default=None)


def duration(value: float) -> str:
    """Seconds with three digits, in ms below one second."""
    scaled, unit = (value, "s") if value >= 1 else (value * 1e3, "ms")
    digits = max(0, 2 - math.floor(math.log10(scaled)))
    return f"{scaled:.{digits}f} {unit}"


def row(results: dict[str, Any], workload: str, opponent: str) -> list[str]:
    """The cells of one line of a workload's table; empty if there is nothing to say yet."""
    runs, title = runs_of(results, workload, opponent), OPPONENTS[opponent].title
    times, ours, floor = seconds(runs), seconds(runs_of(results, workload, "ours")), floor_of(results, workload)
    if not times:
        return [title, reason(runs[-1])] if runs else []
    if opponent == "floor":
        relative = f"{floor / statistics.median(ours):.2f}" if ours else ""
        return [title, f"{duration(floor)} (best)", relative, "1", "", "", ""]
    middle = statistics.median(times)
    measured = [r for r in runs if "round_s" in r]
    busy, ours_busy = (seconds(some, "cpu_s") for some in (runs, runs_of(results, workload, "ours")))
    return [
        title if len(times) > 1 else f"{title} (one repeat)",
        duration(middle) + (f" [{duration(min(times))} – {duration(max(times))}]" if len(times) > 1 else ""),
        f"{middle / statistics.median(ours):.2f}" if ours else "",
        f"{floor / middle:.2f}" if floor else "",
        f"{statistics.median(r['warmup_s'] for r in measured):.1f}",
        f"{statistics.median(r['setup_s'] for r in measured):.1f}",
        f"{statistics.median(r['loss_after'] for r in measured):.3f}",
        duration(statistics.median(busy)) if busy else "",
        f"{statistics.median(busy) / statistics.median(ours_busy):.2f}" if busy and ours_busy else "",
    ]


def table(rows: list[list[str]], columns: tuple[str, ...] = COLUMNS) -> str:
    """Markdown; short rows are filled up."""
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1)]
    lines += [[*cells, *[""] * (len(columns) - len(cells))] for cells in rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


def markdown(results: dict[str, Any]) -> str:
    """All tables and what the figures were taken on."""
    host, peak = results["machine"], peak_of(results)
    parts = [
        "# Seconds per round",
        f"{host['cpu']}, {results['threads']} of {host['cores']} cores, {host['memory_gb']} GB; "
        f"{host['system']}, Python {host['python']}; float32. Medians of processes' medians [lowest – highest].",
    ]
    if results.get("quick"):
        parts.append("**A quick run, to see that everything runs; not to be quoted.**")
    if peak:
        parts.append(f"One large matrix product reached {peak / 1e9:.0f} GFLOP/s at best.")
    for name in [w for w in WORKLOADS if any(r["workload"] == w for r in results["runs"])]:
        work = WORKLOADS[name]
        rows = [cells for opponent in OPPONENTS if (cells := row(results, name, opponent))]
        before = [r["loss_before"] for r in results["runs"] if r["workload"] == name and r.get("loss_before")]
        repeats = max((len(seconds(runs_of(results, name, o))) for o in OPPONENTS), default=0)
        start = f", loss before {before[0]:.3f}" if before else ""
        counted = f"{repeats} repeat" + "s" * (repeats != 1)
        parts.append(f"## {name}\n\n{work.title}; {flop(work) / 1e9:.3g} GFLOP a round; {counted}{start}.")
        parts.append(table(rows))
    versions = {r["opponent"]: r["versions"] for r in results["runs"] if "versions" in r}
    listed = [
        [OPPONENTS[o].title, ", ".join(f"{k} {v}" for k, v in versions[o].items())]
        for o in OPPONENTS
        if o in versions
    ]
    parts += ["## Versions", table(listed, ("", "versions"))]
    used = sorted({r["session"] for r in results["runs"]})
    sessions = [
        f"* `{s['command']}`, {s['date']}, commit {s['commit']}" for s in (results["sessions"][i] for i in used)
    ]
    parts += ["## Measured by", "\n".join(sessions)]
    return "\n\n".join(parts) + "\n"


def plot(results: dict[str, Any], path: Path) -> None:
    """One panel per workload: a dot per opponent on a logarithmic scale, whiskers from lowest to highest."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator

    names = [w for w in WORKLOADS if any(seconds(runs_of(results, w, o)) for o in OPPONENTS)]
    if not names:
        return
    columns = min(2, len(names))
    lines = -(-len(names) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(6 * columns, 2.8 * lines), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names):
        shown = [o for o in OPPONENTS if seconds(runs_of(results, name, o))]
        for place, opponent in enumerate(shown):
            times = seconds(runs_of(results, name, opponent))
            middle = floor_of(results, name) if opponent == "floor" else statistics.median(times)
            spread = None if opponent == "floor" else [[middle - min(times)], [max(times) - middle]]
            axis.errorbar(middle, place, xerr=spread, color=COLOURS[opponent], fmt="o", markersize=7, capsize=3)
            right = middle if spread is None else max(times)
            beside = {"xytext": (8, 0), "textcoords": "offset points"}
            axis.annotate(duration(middle), (right, place), **beside, va="center", fontsize=9)
        axis.set_yticks(range(len(shown)), [OPPONENTS[o].title for o in shown])
        axis.set_ylim(len(shown) - 0.5, -0.5)
        every = [t for o in shown for t in seconds(runs_of(results, name, o))]
        low = min([*every, floor_of(results, name) or math.inf])
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(every) < 40 * low else (1,)))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms")
        axis.xaxis.set_minor_formatter("")
        axis.set_xlim(low / 2, max(every) * 4)
        what = textwrap.fill(WORKLOADS[name].title, 60)
        axis.set_title(f"{name}\n{what}", fontsize=10, loc="left")
        axis.grid(axis="x", alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("time per round (less is better, logarithmic)", fontsize=10)
    figure.suptitle(f"{results['machine']['cpu']}, {results['threads']} cores", fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)
