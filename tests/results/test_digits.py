"""Numbers of tables: as many digits as they carry, and the deviation to the mean's last one."""

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.metrics.significance import Difference
from fedjax_fair.results.differences import Compared, _interval
from fedjax_fair.results.digits import digits_of, signed, spread

ACCURACY = ff.Metric(None, name="accuracy")
AUROC = ff.Metric(None, name="auroc", unit="")
RMSE = ff.Metric(None, name="rmse", unit="mmHg", range=(0, float("inf")))


@pytest.mark.parametrize(
    ("values", "measure", "metric", "shown"),
    [
        ((81.2, 83.6), "accuracy", ACCURACY, "82.4±1.7"),
        ((0.61, 0.63), "accuracy", AUROC, ".620±.014"),
        ((0.0104, 0.0106), "variance", AUROC, ".0105±.0001"),
        ((1.0, 1.0), "worst10", AUROC, "1.000±0.000"),
        ((48.26, 50.01), "accuracy", RMSE, "49.13±1.24"),
        ((12345.0, 12999.0), "accuracy", RMSE, "12672±462"),
        ((1500.0, 1500.6), "accuracy", RMSE, "1500.3±0.4"),
        ((1500.0, 1500.0), "accuracy", RMSE, "1500±0"),
        ((1e-9, 1.0, -1.0 + 1e-9), "accuracy", RMSE, ".0000±1.0000"),
        ((3.2e25, 1e25), "accuracy", RMSE, "2.1e+25±1.556e+25"),
        ((0.181, 0.177), "gini", RMSE, ".179±.003"),
        ((0.5, 20.6), "gini", RMSE, "10.550±14.213"),
        ((np.nan, np.nan), "accuracy", AUROC, "–"),
        ((-0.0001, -0.0002), "accuracy", AUROC, ".000±.000"),
    ],
)
def test_a_spread(values, measure, metric, shown):
    assert spread(np.array(values), *digits_of(measure, metric)) == shown


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    compared = Compared(Difference(**dict.fromkeys(Difference._fields, 0.0) | {"mean": -0.02, "low": -0.3}), 1.0)
    assert _interval(compared, 1, "f") == "+0.0 [-0.3, +0.0]"


@pytest.mark.parametrize(
    ("numbers", "how", "shown"),
    [
        ((-0.002553, -0.0335, 0.02839), (4, "g"), ["-0.00255", "-0.03350", "+0.02839"]),
        ((75.2, -245.0, 395.4), (4, "g"), ["+75.2", "-245.0", "+395.4"]),
        ((-0.0871, -0.143, 0.0), (3, "f"), ["-.087", "-.143", "+.000"]),
        ((-0.0016, -0.0031, 0.0001), (4, "f"), ["-.0016", "-.0031", "+.0001"]),
        ((11.24, 4.2, 18.1), (1, "f"), ["+11.2", "+4.2", "+18.1"]),
    ],
)
def test_an_interval_is_printed_to_one_place(numbers, how, shown):
    assert signed(numbers, *how) == shown
