"""The grids that the papers tune their rules on: what ``--tune`` tries, beside the clients' learning rate."""

from collections.abc import Mapping
from typing import Any

import numpy as np

GRIDS: Mapping[str, Mapping[str, list[Any]]] = {
    "fedprox": {"mu": [0.001, 0.01, 0.1, 1.0]},  # Li et al., MLSys 2020
    "qfedavg": {"q": [0.1, 1.0, 2.0, 5.0]},  # Li et al., ICLR 2020: from 0 up to 15, as the data ask for
    "qfedsgd": {"q": [0.1, 1.0, 2.0, 5.0]},
    "afl": {"lr": [0.01, 0.1, 0.5, 0.7]},  # Chen et al. 2024 (FedMABA), its rows of AFL
    "term": {"t": [0.1, 0.5, 1.0, 10.0]},  # Hahn et al. 2024 (AAggFF), Chen et al. 2024
    "fedmgda_plus": {"epsilon": [0.05, 0.1, 0.5, 1.0]},  # Hu et al., TNSE 2022
    "fedfv": {"alpha": [0.1, 0.2, 0.334, 0.5]},  # Wang et al., IJCAI 2021
    "propfair": {"M": [2.0, 3.0, 4.0, 5.0]},  # Zhang et al., TMLR 2022
    "fedmaba": {"alpha": [0.5, 0.8], "eta_b": [0.1, 0.5]},  # Chen et al. 2024
    "aaggff_s": {"cdf": ["weibull", "logistic", "normal", "gumbel"]},  # Hahn et al., ICML 2024
    "aaggff_d": {"cdf": ["weibull", "logistic", "normal", "gumbel"]},
    "pg_ffl": {"beta": [0.0001, 0.001, 0.01, 0.1]},  # Sun et al. 2022: its rate, around the one that it names
    "fedeba": {"tau": [0.05, 0.1, 0.5, 1.0]},  # Wang et al. 2023
    "fedeba_plus": {"tau": [0.1, 1.0], "alpha": [0.1, 0.5]},
    "fedmdfg": {"theta": [5.0, 11.25, 22.5, 45.0]},  # Pan et al., AAAI 2023: 11.25
    "gifair": {"coeff": [0.1, 0.25, 0.5, 1.0]},  # Yue et al. 2023: .5; Huawei's code: .1
    "superquantile": {"theta": [0.1, 0.3, 0.5, 0.8]},  # Laguel et al., CISS 2021
    "adafed": {"gamma": [0.5, 1.0, 2.0, 3.0]},  # Hamidi and Yang, TMLR 2024: 1 and 3 in the port
    "fairmoo": {"prefer": [0.003, 0.006, 0.03, 0.3]},  # .003 and .006 in the authors' code
    "drfa": {"lr": [0.0001, 0.001, 0.01, 0.1]},  # Deng et al., NeurIPS 2020: .1, decaying
    "fedheal": {"threshold": [0.3, 0.5], "beta": [0.2, 0.4]},  # Chen et al., CVPR 2024: .3 and .4
    "loss_softmax": {"temperature": [0.1, 0.5, 1.0, 5.0]},
    "size_softmax": {"temperature": [0.1, 0.5, 1.0, 5.0]},
}
"""Per rule its settings and their values, four points each; a rule that is not here has none."""


POINTS = 12
"""How many settings ``--tune`` tries of every rule: those of its grid, times learning rates."""


def rates(lr: float, count: int) -> list[float]:
    """``count`` learning rates around ``lr``, itself among them, in steps of a factor: a decade to either side from
    five on.

    >>> rates(0.1, 3)
    [0.032, 0.1, 0.32]
    >>> rates(0.1, 2)
    [0.1, 0.18]
    """
    reach, even = min(1.0, (count - 1) / 4), 1 - count % 2
    exponents = np.linspace(-reach, reach, count + even)[even:] if count > 1 else np.zeros(1)
    return [lr if exponent == 0 else float(f"{lr * 10**exponent:.2g}") for exponent in exponents]
