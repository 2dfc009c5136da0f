"""Our engine and every opponent on the same work, in the same run, in turn. See README.md beside this file."""

import dataclasses
import datetime
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from benchmarks.speed import report, runner
from benchmarks.speed.workloads import WORKLOADS, Workload

DEFAULT_WORKLOADS = (
    *("lr-synthetic", "mlp-fmnist", "mlp-fmnist-all", "cnn-cifar", "pfl-cifar"),
    *("resnet-user", "gru-shakespeare", "skewed-fedmaba", "transformer-text"),
)
TOLERANCE = 1e-4
"""Relative difference of the losses before: more means that an opponent does other work."""


@dataclasses.dataclass
class Options:
    """Measure seconds per round, side by side. An interrupted run continues where the same --out says it was."""

    workloads: Sequence[str] = DEFAULT_WORKLOADS
    """Of those, and pfl-cifar-dropout."""
    opponents: Sequence[str] = tuple(runner.OPPONENTS)
    """Of ours, torch_loop, torch_vmap, fedjax, pfl, flower, floor."""
    repeats: int = 5
    """Processes of each opponent on each workload; the table shows the median of their medians."""
    out: Path | None = None
    """Folder for the results; by default results/MACHINE beside this file."""
    threads: int = 2
    """Cores that every process is kept on."""
    timeout: float = runner.TIMEOUT
    """Seconds that one process may take."""
    quick: bool = False
    """One repeat of very few rounds: to see that everything runs, not to quote."""
    install: bool = False
    """Make the opponents' environments and stop; otherwise they are made when first needed."""
    data: Path | None = None
    """For gru-shakespeare: an .npz of roles, or LEAF's folder of Shakespeare; see README.md."""
    resume: bool = True
    """Keep what the folder already holds; --no-resume starts afresh."""


def main() -> int:
    """Repeat by repeat, workload by workload, opponent by opponent; saved after every process."""
    options = tyro.cli(Options)
    for kind, names, known in (
        ("workload", options.workloads, WORKLOADS),
        ("opponent", options.opponents, runner.OPPONENTS),
    ):
        for name in names:
            if name not in known:
                print(f"unknown {kind} {name!r}; known are {', '.join(known)}", file=sys.stderr)
                return 2
    if options.install:
        return install_all(options)
    described = runner.machine()
    default = (
        runner.HERE / "results" / re.sub(r"[^a-z0-9]+", "-", f"{described['cpu']} {options.threads} cores".lower())
    )
    out = options.out or default.with_name(default.name.strip("-") + ("-quick" if options.quick else ""))
    out.mkdir(parents=True, exist_ok=True)
    results = begin(out / "speed.json", options, described)
    with tempfile.TemporaryDirectory() as shared:
        files = {name: prepare(WORKLOADS[name], Path(shared), options) for name in options.workloads}
        for repeat in range(1 if options.quick else options.repeats):
            for name in options.workloads:
                for opponent in options.opponents:
                    play(results, runner.OPPONENTS[opponent], WORKLOADS[name], repeat, options, files[name])
                    save(results, out)
    print((out / "speed.md").read_text())
    return 0


def install_all(options: Options) -> int:
    """Every opponent's environment; says what could not be had."""
    failed = 0
    for name in options.opponents:
        error = runner.install(runner.OPPONENTS[name])
        print(f"{name}: {error or 'ready'}", flush=True)
        failed += error is not None
    return 1 if failed else 0


def begin(path: Path, options: Options, described: dict[str, Any]) -> dict[str, Any]:
    """Results so far, or an empty record of this machine and command."""
    if options.resume and path.exists():
        results = json.loads(path.read_text())
        if (
            results["machine"] != described
            or results["threads"] != options.threads
            or results["quick"] != options.quick
        ):
            raise SystemExit(f"{path.parent} holds results of another machine or setting; choose another --out")
    else:
        results = {
            "machine": described,
            "threads": options.threads,
            "quick": options.quick,
            "sessions": [],
            "runs": [],
        }
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    command = " ".join(["python -m benchmarks.speed", *words])
    results["sessions"].append({"command": command, "date": now, "commit": runner.commit()})
    return results


def prepare(work: Workload, folder: Path, options: Options) -> dict[str, Any]:
    """``{"file": path}`` of what the workload's processes share, ``{"not_run": reason}``, or nothing to share."""
    if not work.needs_file:
        return {}
    command = [sys.executable, "-m", "benchmarks.speed.prepared", "--workload", work.name]
    command += ["--out", str(folder / f"{work.name}.npz")]
    command += ["--data", str(options.data.resolve())] if options.data else []
    made = runner.run_json(command)
    return {"not_run": made["error"]} if "error" in made else made


def play(
    results: dict[str, Any],
    opponent: runner.Opponent,
    work: Workload,
    repeat: int,
    options: Options,
    made: dict[str, Any],
) -> None:
    """One process, unless it is measured already; what failed in this session is not tried again in it."""
    session = len(results["sessions"]) - 1
    same = [r for r in results["runs"] if (r["opponent"], r["workload"]) == (opponent.name, work.name)]
    if any(r["repeat"] == repeat and "round_s" in r for r in same):
        return
    if any(r["session"] == session and "round_s" not in r for r in same):
        return
    error = None if "not_run" in made else runner.install(opponent)
    if "not_run" in made:
        outcome = {"not_run": made["not_run"]}
    elif error is None:
        warmup, rounds, call = (1, 2, 1) if options.quick else (work.warmup, work.rounds, work.call)
        sizes = {"workload": work.name, "warmup": warmup, "rounds": rounds, "call": call, "seed": repeat}
        arguments = [word for key, value in sizes.items() for word in (f"--{key}", str(value))]
        arguments += ["--data", made["file"]] if made else []
        arguments += ["--quick"] if options.quick and made else []
        outcome = runner.measure(opponent, arguments, options.threads, options.timeout)
    else:
        outcome = {"error": error}
    old = [r for r in same if r["repeat"] == repeat or "round_s" not in r]
    results["runs"] = [r for r in results["runs"] if r not in old]
    entry = {"opponent": opponent.name, "workload": work.name, "repeat": repeat, "session": session, **outcome}
    results["runs"].append(entry)
    check_loss(results["runs"], entry)
    shown = (
        f"{statistics.median(entry['round_s']) * 1e3:.4g} ms a round"
        if "round_s" in entry
        else report.reason(entry)
    )
    print(f"repeat {repeat + 1}  {work.name:18} {opponent.name:12} {shown}", flush=True)


def check_loss(runs: list[dict[str, Any]], entry: dict[str, Any]) -> None:
    """Turn a measurement into an error where its initial loss is not everybody else's: it did other work."""
    before = [r["loss_before"] for r in runs if r["workload"] == entry["workload"] and r.get("loss_before")]
    if entry.get("loss_before") and abs(entry["loss_before"] / before[0] - 1) > TOLERANCE:
        entry["error"] = f"initial loss {entry['loss_before']:.6g}, where others have {before[0]:.6g}"
        del entry["round_s"]


def save(results: dict[str, Any], out: Path) -> None:
    """JSON with every number, the table, the plot; the JSON in one move, so that no interruption tears it."""
    part = out / "speed.json.part"
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(out / "speed.json")
    (out / "speed.md").write_text(report.markdown(results))
    report.plot(results, out / "speed.png")


if __name__ == "__main__":
    sys.exit(main())
