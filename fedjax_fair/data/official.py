"""Official test examples, beside those that clients train on: to the clients they are named for, or by class."""

from typing import Any

import jax
import numpy as np

from fedjax_fair.checks import warn
from fedjax_fair.data.host_store import opened
from fedjax_fair.data.partition.dealing import Partition, apportion
from fedjax_fair.data.partition.natural import Natural
from fedjax_fair.data.split import Rows
from fedjax_fair.data.store import check_finite, check_labels, examples_of


def append_official(
    x: Any,
    y: np.ndarray,
    test: Any,
    train: Rows,
    n_clients: int,
    partition: Partition | Natural,
    client_id: Any,
    rng: np.random.Generator,
) -> tuple[Any, np.ndarray, Rows]:
    """The official test examples, all labels, and whose which rows are, behind the others; see
    :func:`from_arrays`."""
    if not isinstance(test, (tuple, list)) or len(test) != 2:
        raise ValueError("test must be a pair (x_test, y_test)")
    x_test, y_test = examples_of(opened(test[0], "x_test"), "x_test"), check_labels(test[1], "y_test")
    check_finite(x_test, len(y_test), "x_test", "y_test")
    like, like_test = (jax.tree.map(lambda a: (a.shape[1:], str(a.dtype)), tree) for tree in (x, x_test))
    if like != like_test:
        raise ValueError(f"x_test must have examples like those of x, {like}, got {like_test}")
    if client_id is None:
        rows, owners = deal_by_class(y, y_test, train, n_clients, isinstance(partition, Natural), rng)
    else:
        rows, owners = deal_by_name(y, y_test, partition, client_id)
    order = np.argsort(owners, kind="stable")
    return x_test, np.concatenate([y, y_test]), (len(y) + rows[order], owners[order])


def deal_by_name(y: np.ndarray, y_test: np.ndarray, partition: Partition | Natural, client_id: Any) -> Rows:
    """Every test example to the client that it is named for; some may get none."""
    assert isinstance(partition, Natural)  # from_arrays sees to that
    owners = partition.numbers(client_id, "test_client_id")
    if len(owners) != len(y_test):
        raise ValueError(f"test_client_id must have one entry per test example, {len(y_test)}, got {len(owners)}")
    if (y.shape[1:], y.dtype.kind) != (y_test.shape[1:], y_test.dtype.kind):
        raise ValueError(
            f"y_test must have labels like those of y, {y.dtype}{list(y.shape[1:])} each, got "
            f"{y_test.dtype}{list(y_test.shape[1:])}"
        )
    return np.arange(len(y_test)), owners


def deal_by_class(
    y: np.ndarray, y_test: np.ndarray, train: Rows, n_clients: int, natural: bool, rng: np.random.Generator
) -> Rows:
    """Every class in proportion to the training examples of it that each client holds."""
    if y.ndim != 1 or y.dtype.kind != "i" or y_test.ndim != 1 or y_test.dtype.kind != "i":
        raise ValueError(
            "official test examples are dealt by class: y and y_test must be vectors of integers (or give "
            "client_id= and test_client_id=, whose test examples they are)"
        )
    rows, owner, guessed = [], [], False
    for c in np.unique(y_test):
        held = np.bincount(train[1][y[train[0]] == c], minlength=n_clients)
        if held.any():
            mine = rng.permutation(np.flatnonzero(y_test == c))
            rows.append(mine)
            owner.append(np.repeat(np.arange(n_clients), apportion(len(mine), held, rng)))
            guessed |= bool((held > 0).sum() > 1)
    owners = np.concatenate([*owner, np.zeros(0, np.int64)])
    count = np.bincount(owners, minlength=n_clients)
    if count.min() == 0:
        raise ValueError(
            f"client {count.argmin()} gets none of the official test examples; deal to fewer clients, or "
            "take the test examples from the clients' own by a test share in split"
        )
    if natural and guessed:  # where each class is one client's, there is nothing to guess
        warn(
            "test examples are dealt to the clients by class, so that a client may get those of others, though "
            "client_id says whose the training examples are: say whose the test examples are by test_client_id="
        )
    return np.concatenate(rows), owners
