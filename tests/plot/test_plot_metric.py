"""Figures in the metric's unit, and what they say of runs that failed."""

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair import plot

ERROR = ff.Metric(None, higher_is_better=False, unit="m", range=(0.0, np.inf), name="error")
NAN = float("nan")


def scored(accuracy, loss=None, **more):
    accuracy = np.array(accuracy, np.float32)
    loss = np.ones_like(accuracy) if loss is None else np.array(loss, np.float32)
    none = np.zeros((len(accuracy), 2), int)
    scores = {"test": ff.Evaluation(accuracy, loss)}
    return ff.History(np.arange(len(accuracy)), scores, none, none, none == 0, None, np.ones(1), np.ones(1), **more)


FINE = scored([[0.5, 0.6, 0.7], [0.6, 0.7, 0.9]])
DEAD = scored([[0.5, 0.6, 0.7], [0, 0, 0]], [[1, 1, 1], [NAN, NAN, NAN]])
ERRORS = scored([[9.0, 8.0, 7.0], [1.0, 6.0, 2.0]], metric=ERROR)


def named(drawn):
    ax = drawn[0] if isinstance(drawn, tuple) else drawn
    texts = ax.get_yticklabels() if ax.get_legend() is None else ax.get_legend().get_texts()
    lines = [" ".join(text.get_text().split()) for text in texts]  # long ones are wrapped
    labels = [line.split(": 0.")[0] for line in lines]
    return [label for label in labels if label != "equality"]


DRAW = [plot.lorenz, plot.client_histogram, plot.sorted_accuracy, plot.frontier, plot.accuracy_and_fairness]


@pytest.mark.parametrize("draw", DRAW)
def test_runs_that_failed_are_named(draw):
    drawn = draw({"a": [FINE], "b": [DEAD], "c": [FINE, DEAD]})
    assert sorted(named(drawn)) == ["a", "b (failed: 3 of 3 clients)", "c (1 of 2 seeds failed)"]
    (drawn[0] if isinstance(drawn, tuple) else drawn).figure.draw_without_rendering()


@pytest.mark.parametrize("draw", DRAW[:4])
def test_failures_alone_are_one_sentence(draw):
    with pytest.raises(ValueError, match=r"run that did not fail, got b \(failed: 3 of 3 clients\)$"):
        draw({"b": [DEAD]})


def test_a_line_ends_where_the_model_does():
    above, _ = plot.accuracy_and_fairness({"b": DEAD})
    np.testing.assert_allclose(above.get_lines()[0].get_ydata(), [60, NAN], rtol=1e-6)


@pytest.mark.parametrize("points", [np.full((2, 3), NAN), np.full((2, 4, 3), NAN), [[0.5, 0.6], [NAN, NAN]]])
def test_a_frontier_of_nothing_is_one_sentence(points):
    with pytest.raises(ValueError, match="'a' must hold at least one client's accuracy in every row"):
        plot.frontier({"a": points})


def test_row_14_axes_are_in_the_metrics_unit():
    ax = plot.sorted_accuracy({"a": ERRORS})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [6, 2, 1])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Clients, from the worst served (%)", "Error (m)")
    ax = plot.lorenz({"a": ERRORS})
    assert ax.get_xlabel() == "Clients, from the best served (%)"
    assert ax.get_ylabel() == "Share of the total error (%)"
    ax = plot.client_histogram({"a": ERRORS})
    assert ax.get_xlabel() == "Client error (m), dot: mean"
    assert ax.get_lines()[1].get_xdata()[0] == 3
    ax = plot.frontier({"a": [ERRORS]})
    assert ax.get_xlabel() == "Mean client error (m), lower is better"
    assert ax.get_ylabel() == "Variance over clients (m²)"
    np.testing.assert_allclose(ax.containers[0].lines[0].get_xydata()[0], [3, 14 / 3], rtol=1e-6)
    above, below = plot.accuracy_and_fairness({"a": ERRORS})
    assert (above.get_ylabel(), below.get_ylabel()) == ("Mean error (m)", "Variance over clients (m²)")
    np.testing.assert_allclose(above.get_lines()[0].get_ydata(), [8, 3], rtol=1e-6)


def test_arrays_are_of_the_metric_that_is_named():
    ax = plot.sorted_accuracy({"a": [3.0, 1.0]}, metric=ERROR)
    assert ax.lines[0].get_ydata().tolist() == [3, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: plot.sorted_accuracy({"a": [-1.0]}, metric=ERROR),
            r"'a' must hold error .*, got -1 to -1",
        ),
        (lambda: plot.lorenz({"a": [0.5]}, metric="m"), "metric must be an ff.Metric, such as .*, got 'm'"),
        (lambda: plot.lorenz({"a": FINE, "b": ERRORS}), "judged by one metric, got accuracy"),
        (lambda: plot.frontier({"a": [[50.0, 60.0]]}), r"'a' must hold accuracies in \[0, 1\], not percent"),
        (
            lambda: plot.lorenz({"a": [-0.5, 0.5]}, metric=ff.Metric(None, unit="", range=(-1, 1), name="R2")),
            "at least 0 for Lorenz curves, got negative values of a",
        ),
    ],
)
def test_a_wrong_call_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
