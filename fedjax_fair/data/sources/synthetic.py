"""Synthetic(a, b): the logistic-regression federation of FedProx and q-FFL, generated on the spot."""

from collections.abc import Sequence

import numpy as np

from fedjax_fair.checks import check_count, check_range, check_truth
from fedjax_fair.data.federated import FederatedData

DIMENSION, CLASSES = 60, 10
SMALLEST = 50
LOG_MEAN, LOG_STD = 4.0, 2.0  # of the client sizes


def synthetic(
    n_clients: int = 30,
    alpha: float = 1.0,
    beta: float = 1.0,
    seed: int = 0,
    iid: bool = False,
    max_size: int | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
) -> FederatedData:
    r"""Clients with linear models of their own, and inputs of their own (``beta``).

    .. math::
        n_k = \lfloor e^{N(4, 2^2)} \rfloor + 50, \quad
        u_k \sim N(0, \alpha^2), \quad B_k \sim N(0, \beta^2), \quad v_k \sim N(B_k 1, I_{60})

    .. math::
        x \sim N(v_k, \mathrm{diag}(j^{-1.2})), \quad
        y = \arg\max(x W_k + c_k), \quad W_k, c_k \sim N(u_k, 1)

    With ``iid``, one W and one c of N(0, 1) serve all clients and :math:`v_k = B_k 1`; the papers' IID
    federation is ``synthetic(n, 0, 0, iid=True)``. The draws are those of the authors' program after
    ``np.random.seed(seed)``, in its order, from a generator of our own: bit for bit the same examples.

    Args:
      n_clients: N; 30 in FedProx and UCB-CS, 100 in q-FFL.
      alpha: STANDARD DEVIATION of u_k. It changes nothing: u_k in every entry of W_k and c_k moves all ten logits
        alike, and the label is the largest. The models differ by their own draws, as much at alpha = 0.
      beta: STANDARD DEVIATION of B_k: how much the clients' inputs differ.
      seed: of all draws, the splits included.
      iid: one model and one law of inputs up to B_k.
      max_size: keep the first ``max_size`` examples of a client; None keeps all. Nobody's examples change.
      split: shares of (train, validation, test) of each client.

    Returns:
      :class:`FederatedData` with x f32[E, 60], y i32[E] in 0, ..., 9; no normaliser.

    Raises: ValueError for a negative ``alpha`` or ``beta``, and as :meth:`FederatedData.from_arrays`.

    Differs from the paper in: ``alpha`` and ``beta`` are standard deviations, as in the authors' code, where
    the text has variances; the two agree at 0 and 1.

    Differs from the authors' code in:
      1. labels come from the largest logit, not from a softmax that can overflow;
      2. the split is drawn with ``seed`` (theirs, 90/10 and re-split 80/10/10 in q-FFL, is not seeded);
      3. features are rounded to float32 after the labels are computed.

    References: Li et al., FedProx, 2020 (Section 5.1); Li et al., q-FFL, 2020 (Section 4.1).

    >>> data = ff.data.synthetic(n_clients=4, alpha=1.0, beta=1.0, seed=0)
    >>> data.sizes.tolist()
    [1527, 137, 348, 3900]
    """
    check_count("n_clients", n_clients)
    check_range("alpha", alpha, 0, open_high=True)
    check_range("beta", beta, 0, open_high=True)
    check_count("seed", seed, low=0, high=2**32 - 1)
    check_truth("iid", iid)
    if max_size is not None:
        check_count("max_size", max_size)
    rng = np.random.RandomState(seed)  # the stream of np.random.seed(seed), which NumPy keeps for good
    sizes = rng.lognormal(LOG_MEAN, LOG_STD, n_clients).astype(int) + SMALLEST
    u, b = rng.normal(0, alpha, n_clients), rng.normal(0, beta, n_clients)
    if iid:
        v = np.repeat(b[:, None], DIMENSION, axis=1)
        shared = rng.normal(0, 1, (DIMENSION, CLASSES)), rng.normal(0, 1, CLASSES)
    else:
        v = rng.normal(b[:, None], 1, (n_clients, DIMENSION))
    scale = np.sqrt(np.arange(1, DIMENSION + 1) ** -1.2)
    xs, ys = [], []
    for k, size in enumerate(sizes):
        model = rng.normal(u[k], 1, (DIMENSION, CLASSES)), rng.normal(u[k], 1, CLASSES)
        weights, bias = shared if iid else model
        x = (v[k] + scale * rng.standard_normal((size, DIMENSION)))[:max_size]
        xs.append(x.astype(np.float32))
        ys.append((x @ weights + bias).argmax(1))
    owner = np.repeat(np.arange(n_clients), [len(y) for y in ys])
    return FederatedData.from_arrays(
        np.concatenate(xs), np.concatenate(ys), client_id=owner, seed=seed, split=split
    )
