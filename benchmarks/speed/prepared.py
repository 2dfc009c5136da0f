"""What a workload's processes share in a file: data that need this package, and a network's first parameters.

Run by the suite, once for each such workload; it prints a JSON line, ``{"file": path}`` or ``{"not_run": reason}``.
"""

import argparse
import itertools
import json
from pathlib import Path

import jax
import numpy as np
from flax.traverse_util import flatten_dict

import fedjax_fair as ff
from benchmarks.speed import workloads
from benchmarks.speed.flax_networks import network
from fedjax_fair.data.sources.leaf import read_leaf

FEWEST = 10
"""Sequences of a role that counts."""
ROLES = ("text", "offsets")
Clients = list[tuple[np.ndarray, np.ndarray]]


def prepare(work: workloads.Workload, source: Path | None) -> dict[str, np.ndarray]:
    """The arrays of the file.

    Raises:
      ValueError: ``source`` is missing, of another form, or has too few roles.
    """
    arrays, letters = {}, workloads.LETTERS
    if not work.even:
        clients = roles(work, source) if work.is_text else synthetic(work)
        x, y = (np.concatenate(parts) for parts in zip(*clients))
        arrays |= {"x": x, "y": y, "size": np.array([len(labels) for _, labels in clients])}
        letters = int(max(x.max(), y.max())) + 1
    if work.network:
        kind = np.int32 if work.is_text else np.float32
        draw = jax.jit(network(work.network, letters).init)
        first = draw(jax.random.key(7), np.zeros((1, *work.shape), kind))
        arrays |= {
            f"params/{name}": np.asarray(leaf) for name, leaf in flatten_dict(first["params"], sep="/").items()
        }
    return arrays


def synthetic(work: workloads.Workload) -> Clients:
    """Training examples of the package's default Synthetic(1, 1)."""
    data = ff.data.synthetic(work.clients, 1.0, 1.0, seed=0)
    ends = np.cumsum(np.asarray(data.train.size))[:-1]
    return [tuple(map(np.asarray, data.take(rows))) for rows in np.split(np.asarray(data.train.rows), ends)]


def roles(work: workloads.Workload, source: Path | None) -> Clients:
    """Sequences of letters of so many roles, evenly spaced by size, and the letters that follow each."""
    if source is None:
        raise ValueError(
            f"{work.name} needs --data, a file of roles or LEAF's folder of Shakespeare (see README.md)"
        )
    found = [role for role in read_roles(source, work.shape[0]) if len(role[0]) >= FEWEST]
    if len(found) < work.clients:
        raise ValueError(
            f"--data must have {work.clients} roles with {FEWEST} sequences of {work.shape[0]} letters, got "
            f"{len(found)} in {source.name}"
        )
    found.sort(key=lambda role: len(role[0]))
    return [found[round(k)] for k in np.linspace(0, len(found) - 1, work.clients)]


def read_roles(source: Path, length: int) -> Clients:
    """Every role of LEAF's folder, or of an .npz with all ``text`` u8 and ``offsets``, where each role's begins."""
    if source.is_dir():
        train = read_leaf(source).train
        after = np.concatenate([train.x[:, 1:], train.y[:, None]], axis=1)
        mine = [train.client == name for name in np.unique(train.client)]
        return [(train.x[rows].astype(np.int32), after[rows].astype(np.int32)) for rows in mine]
    try:
        with np.load(source) as file:
            text, offsets = (file[name] for name in ROLES)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"--data must be an .npz of {' and '.join(ROLES)}, got {source.name}: {error}") from None
    text = np.unique(text, return_inverse=True)[1].astype(np.int32)
    found = []
    for begin, end in itertools.pairwise(offsets):
        count = max(0, int(end - begin) - 1) // length
        pairs = (text[begin + shift : begin + shift + count * length].reshape(count, length) for shift in (0, 1))
        found.append(tuple(pairs))
    return found


def main() -> None:
    """One workload's file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    try:
        np.savez(args.out, **prepare(workloads.WORKLOADS[args.workload], args.data))
    except ValueError as error:
        print(json.dumps({"not_run": str(error)}))
        return
    print(json.dumps({"file": str(args.out)}))


if __name__ == "__main__":
    main()
