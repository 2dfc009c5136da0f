"""Figures: they show what they should, fit one column, and never touch pyplot."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from toy import federation

import fedjax_fair as ff
from fedjax_fair import metrics, plot
from fedjax_fair.data.names import Names
from fedjax_fair.results.differences import Differences

NAMES = ("FedAvg", "q-FFL", "AFL", "FedMABA", "AAggFF-D", "PropFair")
ROUNDS = np.arange(0, 100, 10)


@pytest.fixture(scope="module")
def history():
    """Six rules, three seeds, ten evaluations, thirty clients of whom one has no test examples."""
    acc = np.random.default_rng(0).beta(6, 2, (len(NAMES), 3, len(ROUNDS), 30))
    acc[..., 7] = np.nan
    return {name: (ROUNDS, a) for name, a in zip(NAMES, acc)}


@pytest.fixture(scope="module")
def final(history):
    return {name: acc[:, -1] for name, (_, acc) in history.items()}


def shares(clients, permutations=9, metric=metrics.kind.ACCURACY, measures=("accuracy", "worst10", "gini")):
    draws = np.random.default_rng(0)
    each = {measure: draws.normal(size=clients) for measure in measures}
    errors = {measure: np.full(clients, 0.1) for measure in each}
    ends = dict.fromkeys(each, 0.0)
    return ff.Contribution(each, errors, ends, ends, "shapley", "test", 20, permutations, 0, 99, metric)


ALONE = {
    "contribution": lambda: plot.contribution(shares(30, measures=["accuracy"]))[0],
    "partition": lambda: plot.partition(federation()),
    "coefficients": lambda: plot.coefficients(of_rounds([[0, 1], [2, 1]], [[0.5, 0.5], [0.9, 0.1]]), 3),
    "selections": lambda: plot.selections(
        {name: of_rounds(np.random.default_rng(i).integers(0, 30, (90, 3))) for i, name in enumerate(NAMES)}, 30
    ),
}


def of_rounds(ids, coef=None, active=None):
    """A history of which only the rounds matter."""
    ids = np.asarray(ids)
    coef = np.full(ids.shape, 1 / ids.shape[1]) if coef is None else np.asarray(coef, float)
    active = np.ones(ids.shape, bool) if active is None else np.asarray(active)
    return ff.History(np.arange(1), {}, ids, coef, active, None, np.full(len(ids), 2), np.zeros(len(ids)))


@pytest.fixture(
    params=[
        *("lorenz", "client_histogram", "sorted_accuracy", "frontier", "over_rounds", "accuracy_and_fairness"),
        *ALONE,
    ]
)
def drawn(request, history, final):
    if request.param in ALONE:
        return ALONE[request.param]()
    if request.param == "over_rounds":
        return plot.over_rounds({name: (t, 100 * np.nanmean(a, -1)) for name, (t, a) in history.items()})
    if request.param == "accuracy_and_fairness":
        return plot.accuracy_and_fairness(history)
    return getattr(plot, request.param)(final)


@pytest.fixture
def ax():
    return Figure().add_subplot()


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def panels(drawn):
    return drawn if isinstance(drawn, tuple) else (drawn,)


def test_every_figure_fits_one_column(drawn):
    figure = panels(drawn)[0].figure
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    assert width == plot.WIDTH
    box = figure.get_tightbbox()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= width + 0.01
    assert box.y1 <= height + 0.01


def test_every_axis_names_its_quantity(drawn):
    *_, below = panels(drawn)
    assert below.get_xlabel()
    for ax in panels(drawn):
        ax.figure.draw_without_rendering()
        assert any(unit in ax.get_xlabel() + ax.get_ylabel() for unit in ("%", "Client", "Round"))


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_save(drawn, tmp_path, suffix):
    path = plot.save(drawn, tmp_path / "new" / f"figure.{suffix}")
    if suffix == "png":
        pixels = imread(path)
        assert pixels.shape[1] == 200 * plot.WIDTH
        assert pixels[..., :3].std() > 0.05
        assert np.ptp(pixels[..., :3], axis=2).max() > 0.5  # colours
    elif suffix == "svg":
        assert "FedMABA" in path.read_text() or panels(drawn)[0].get_xlabel() in path.read_text()  # not outlines
    else:
        assert b"/Type0" in path.read_bytes()  # fonttype 42
        assert b"/Type3" not in path.read_bytes()


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_same_script_writes_the_same_bytes(final, tmp_path, suffix):
    first, second = (tmp_path / f"{i}.{suffix}" for i in (1, 2))
    plot.save(plot.lorenz(final), first)
    plot.save(plot.lorenz(final).figure, second)
    assert first.read_bytes() == second.read_bytes()


def test_a_figure_is_written_whole_or_not_at_all(final, tmp_path, monkeypatch):
    drawn, place = plot.lorenz(final), tmp_path / "lorenz.png"
    plot.save(drawn, place)
    before = place.read_bytes()

    def interrupted(self, file, **settings):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(type(drawn.figure), "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plot.save(drawn, place)
    assert place.read_bytes() == before
    assert [*tmp_path.iterdir()] == [place]


def test_without_a_suffix_a_figure_is_a_png_and_with_an_unknown_one_nothing(final, tmp_path):
    assert plot.save(plot.lorenz(final), tmp_path / "lorenz") == tmp_path / "lorenz.png"
    assert imread(tmp_path / "lorenz.png").shape
    with pytest.raises(ValueError, match="txt"):
        plot.save(plot.lorenz(final), tmp_path / "new" / "lorenz.txt")
    assert [*tmp_path.iterdir()] == [tmp_path / "lorenz.png"]


def test_lorenz_shows_the_curve_and_its_gini(ax):
    x = np.array([0.2, 0.4, 0.9, np.nan])
    assert plot.lorenz({"one": x, "three": np.stack([x, x, x])}, ax) is ax
    equality, one, three = ax.get_lines()
    np.testing.assert_allclose(equality.get_xdata(), equality.get_ydata())
    assert np.interp(100 / 3, *one.get_data()) <= 100 / 3
    np.testing.assert_allclose(one.get_ydata(), three.get_ydata(), atol=1e-5)
    gini = f"{float(metrics.gini(x)):.3f}"
    assert texts(ax) == ["equality", f"one: {gini}", f"three: {gini} ± 0.000"]
    assert not ax.child_axes  # an inset only where the curves hug the diagonal
    close = plot.lorenz({"even": [0.6, 0.7, 0.8]})
    np.testing.assert_allclose(close.get_lines()[1].get_ydata(), [0, 600 / 21, 1300 / 21, 100], rtol=1e-5)
    assert len(close.child_axes) == 1


def test_histogram_counts_every_client_once_per_seed(final):
    ax = plot.client_histogram(final, bins=12)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(NAMES)
    outlines = [patch for patch in ax.patches if not patch.get_fill()]
    scale = float(ax.child_axes[0].get_yticklabels()[-1].get_text())
    for row, outline in zip(ax.get_yticks(), outlines, strict=True):
        heights, edges, _ = outline.get_data()
        assert len(edges) == 13
        assert (heights - row).sum() / 0.85 * scale == pytest.approx(29, rel=0.02)
    means = [line.get_xdata()[0] for line in ax.get_lines() if line.get_marker() == "o"]
    np.testing.assert_allclose(means, [100 * np.nanmean(x) for x in final.values()])


def test_histogram_of_equal_clients():
    assert plot.client_histogram({"same": np.full(5, 0.5)}).get_xlim()[0] < 50


@pytest.mark.parametrize(("band", "half"), [("range", 1), ("std", 2**0.5), ("interval", 12.706), ("none", 0)])
def test_over_rounds_draws_mean_and_band(ax, band, half):
    """Half the range, the standard deviation and the interval of 1 and 3: t of one degree of freedom."""
    values = np.array([[1.0, 2, 3], [3, 4, 5]])
    plot.over_rounds({"two": ([0, 5, 10], values), "one": ([0, 5, 10], values[0])}, "Loss (nats)", band, ax)
    two, one = ax.get_lines()
    np.testing.assert_array_equal(two.get_xdata(), [0, 5, 10])
    np.testing.assert_array_equal(two.get_ydata(), [2, 3, 4])
    np.testing.assert_array_equal(one.get_ydata(), [1, 2, 3])
    assert len(ax.collections) == (band != "none")
    for filled in ax.collections:
        edges = np.unique(np.round(filled.get_paths()[0].vertices[:, 1], 9))
        np.testing.assert_allclose(
            edges, np.unique(np.round([2 - half, 3 - half, 4 - half, 2 + half, 3 + half, 4 + half], 9))
        )
    assert (ax.get_xlabel(), ax.get_ylabel(), texts(ax)) == ("Round", "Loss (nats)", ["two", "one"])


def test_accuracy_and_fairness_panels(history):
    above, below = plot.accuracy_and_fairness(history)
    _, acc = history["AFL"]
    np.testing.assert_allclose(above.get_lines()[2].get_ydata(), 100 * metrics.mean(acc).mean(0), rtol=1e-5)
    np.testing.assert_allclose(below.get_lines()[2].get_ydata(), metrics.variance(acc).mean(0), rtol=1e-5)
    assert (above.get_ylabel(), below.get_ylabel()) == ("Mean accuracy (%)", "Variance over clients (%²)")
    assert texts(above) == list(NAMES)
    assert len(plot.accuracy_and_fairness({"one seed": (ROUNDS, acc[0])})) == 2


def test_rules_look_different_and_alike_in_all_figures(history, final):
    curves = plot.lorenz(final).get_lines()[1:]
    lines = plot.accuracy_and_fairness(history)[0].get_lines()
    assert [line.get_color() for line in curves] == [line.get_color() for line in lines]
    assert len({to_hex(line.get_color()) for line in lines}) == len({line.get_marker() for line in lines}) == 6
    many = plot.lorenz({f"rule {i}": [0.2, 0.8] for i in range(35)}).get_lines()[1:]
    assert len({(line.get_color(), line._unscaled_dash_pattern) for line in many}) == 35


def test_the_last_evaluations_count_by_their_mean():
    """As in a comparison's table."""
    runs = [scored(0), scored(1)]
    late = np.stack([history.accuracy[-2:] for history in runs])
    assert not np.allclose(late[:, 0], late[:, 1])
    gini = np.asarray(metrics.gini(late)).mean(1)
    for given in ({"a": runs}, {"a": late}):
        lorenz = plot.lorenz(given, last=2)
        assert texts(lorenz)[1] == f"a: {gini.mean():.3f} ± {gini.std(ddof=1):.3f}"
        point = plot.frontier(given, last=2).containers[0].lines[0].get_xydata()[0]
        np.testing.assert_allclose(point, [100 * late.mean(), metrics.variance(late).mean()], rtol=1e-5)
        (line,) = plot.sorted_accuracy(given, last=2).get_lines()
        np.testing.assert_allclose(line.get_ydata(), 100 * np.sort(late).mean((0, 1)), rtol=1e-5)
        (dot,) = (line for line in plot.client_histogram(given, last=2).get_lines() if line.get_marker() == "o")
        np.testing.assert_allclose(dot.get_xdata(), [100 * late.mean()], rtol=1e-5)


def test_pyplot_is_never_imported():
    code = (
        "import sys; from fedjax_fair import plot; assert 'matplotlib' not in sys.modules; "
        "plot.lorenz({'a': [0.1, 0.2]}); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_users_style_is_left_alone(final):
    import matplotlib

    before = dict(matplotlib.rcParams)
    plot.lorenz(final)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("draw", [plot.lorenz, plot.client_histogram, plot.over_rounds])
@pytest.mark.parametrize("empty", [{}, [1, 2], None])
def test_nothing_to_draw(draw, empty):
    with pytest.raises(ValueError, match="dictionary with at least one rule"):
        draw(empty)


@pytest.mark.parametrize(
    ("measure", "label"),
    [
        ("accuracy", "Mean accuracy (%)"),
        ("variance", "Variance over clients (%²)"),
        ("gini", "Gini"),
        ("worst10", "Worst 10 %: accuracy (%)"),
    ],
)
def test_over_rounds_draws_a_measure_of_histories(ax, measure, label):
    runs = [scored(0), scored(1)]
    accuracy = np.stack([history.accuracy for history in runs])
    plot.over_rounds({"two": runs, "one": runs[0]}, measure=measure, ax=ax)
    two, one = ax.get_lines()
    values = metrics.summary(accuracy)[measure]
    np.testing.assert_allclose(two.get_ydata(), np.mean(values, 0), rtol=1e-5)
    np.testing.assert_allclose(one.get_ydata(), values[0], rtol=1e-5)
    assert ax.get_ylabel() == label


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot.over_rounds({"a": scored(0)}, measure="ginny"), "did you mean 'gini'"),
        (
            lambda: plot.over_rounds({"a": scored(0), "b": ([1], [1])}),
            "curves must all be histories, or all pairs .*, unlike 'b'",
        ),
        (
            lambda: plot.lorenz({"a": np.ones((2, 2, 2, 2))}),
            r"'a' must be accuracies \[N\], \[seeds, N\] or \[seeds, T, N\], got \(2, 2, 2, 2\)$",
        ),
        (lambda: plot.lorenz({"a": [scored(0)]}, last=0), "last must be at least 1"),
        (lambda: plot.lorenz({"a": [50.0, 60]}), r"'a' must hold accuracies in \[0, 1\], not percent"),
        (lambda: plot.client_histogram({"a": [np.nan]}), "'a' must hold at least one client"),
        (lambda: plot.client_histogram({"a": [0.5]}, bins=0), "bins must be at least 1"),
        (lambda: plot.over_rounds({"a": [1, 2, 3]}), r"'a' must be a pair \(rounds, values\)"),
        (lambda: plot.over_rounds({"a": ([1, 2], [1, 2, 3])}), r"got \(2,\), \(3,\)"),
        (lambda: plot.over_rounds({"a": ([1], [1])}, band="rang"), "did you mean 'range'"),
        (lambda: plot.accuracy_and_fairness({"a": ([1], [0.5])}), r"\[T, N\] or \[seeds, T, N\]"),
        (lambda: plot.accuracy_and_fairness({"a": ([1, 2], np.ones((3, 4)))}), r"got \(2,\), \(3,\)"),
        (
            lambda: plot.lorenz({"a": {"b": 1}}),
            r"must be accuracies \[N\], \[seeds, N\] or \[seeds, T, N\], or a History for .*, got a dict$",
        ),
        (lambda: plot.frontier({"a": ["b"]}), "must be .*, got a list of str$"),
        (lambda: plot.coefficients({"a": scored(0)}), "history must be the History of one run, got dict"),
        (lambda: plot.coefficients(of_rounds([[0, 4]]), 3), "n_clients must be at least 5, got 3"),
        (lambda: plot.selections({"a": of_rounds([[0, 4]])}, 3), "n_clients must be at least 5, got 3"),
        (
            lambda: plot.selections({"a": [of_rounds([[0, 4]])]}, 5),
            "history must be the History of one run, got li",
        ),
        (lambda: plot.partition({"a": 1}), "data must be a FederatedData, such as .*, got dict"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# What the figures show


def test_sorted_accuracies_rise_from_the_worst_client_to_the_best():
    ax = plot.sorted_accuracy({"a": [0.9, 0.1, 0.5]})
    share, accuracy = ax.lines[0].get_data()
    np.testing.assert_allclose(share, [0, 50, 100])
    np.testing.assert_allclose(accuracy, [10, 50, 90])


def test_the_partition_stacks_each_clients_classes():
    data = federation()
    ax = plot.partition(data)
    heights = np.array([[bar.get_height() for bar in bars] for bars in ax.containers])
    np.testing.assert_array_equal(heights.sum(0), data.sizes)
    labels = np.asarray(data.y)[np.asarray(data.train.rows)]
    np.testing.assert_array_equal(heights.sum(1), np.bincount(labels, minlength=len(heights)))
    with pytest.raises(ValueError, match="data must have class labels to show"):
        plot.partition(data._replace(y=np.linspace(0, 1, len(data.y))))


def test_the_heat_map_is_the_mean_coefficient_of_the_rounds_taken_part_in():
    history = of_rounds([[0, 1], [0, 1], [0, 2], [1, 2]], [[0.2, 0.8], [0.4, 0.6], [1, 0], [0.3, 0.7]])
    shown = np.ma.filled(plot.coefficients(history, 4, bins=2).images[0].get_array().astype(float), np.nan)
    np.testing.assert_allclose(shown, [[0.3, 1], [0.7, 0.3], [np.nan, 0.35], [np.nan, np.nan]])
    absent = history._replace(active=np.array([[1, 0]] * 4, bool))
    shown = np.ma.filled(plot.coefficients(absent, 4, bins=2).images[0].get_array().astype(float), np.nan)
    np.testing.assert_allclose(shown[1:3], [[np.nan, 0.3], [np.nan, np.nan]])
    limits = plot.coefficients(history._replace(coef=-history.coef), 4).images[0].get_clim()
    assert limits == (-1, 1)  # white at 0


def test_rules_side_by_side_share_one_scale_of_multiples_of_the_rounds_mean():
    ids = [[0, 1], [0, 1], [0, 2]]
    even = of_rounds(ids, [[0.02, 0.02]] * 3)  # a rule with a short step of its own
    odd = of_rounds(ids, [[0.3, 0.1], [0.3, 0.1], [1.0, -1.0]])
    drawn = plot.coefficients_by_rule({"even": even, "odd": odd}, 3, bins=2)
    assert [ax.get_title() for ax in drawn] == ["even", "odd"]
    shown = [np.ma.filled(ax.images[0].get_array().astype(float), np.nan) for ax in drawn]
    np.testing.assert_allclose(shown[0], [[1, 1], [1, np.nan], [np.nan, 1]])
    np.testing.assert_allclose(shown[1], [[1.5, 1], [0.5, np.nan], [np.nan, 0.25]])  # below 0: the darkest
    assert {ax.images[0].get_clim() for ax in drawn} == {(0.25, 4)}
    assert len(drawn[0].figure.axes) == 3  # two maps and one colour bar
    nobody = even._replace(active=np.zeros((3, 2), bool), coef=np.zeros((3, 2)))
    (ax,) = plot.coefficients_by_rule({"nobody": [nobody, even]}, 3)  # of several seeds the first
    assert np.isnan(np.ma.filled(ax.images[0].get_array().astype(float), np.nan)).all()
    with pytest.raises(ValueError, match="'even' must be a History, or a list with one per seed, got ndarray"):
        plot.coefficients_by_rule({"even": even.coef}, 3)


def test_the_heat_maps_call_few_clients_by_their_names():
    history = of_rounds([[0, 1], [2, 1]], [[0.5, 0.5], [0.9, 0.1]])
    named = history._replace(names=Names(clients=("Aarau", "Bern", "A hospital with a long name")))
    drawn = [plot.coefficients(named, 3), *plot.coefficients_by_rule({"one": named, "other": named}, 3)]
    for ax in drawn:
        words = [label.get_text() for label in ax.get_yticklabels()]
        assert words in (["Aarau", "Bern", "A hospital with a l…"], [])
    many = named._replace(names=Names(clients=tuple(map(str, range(100, 121)))))
    assert "100" not in [label.get_text() for label in plot.coefficients(many, 21).get_yticklabels()]


def test_selections_count_rounds_per_client():
    (line,) = plot.selections({"a": of_rounds([[0, 1], [0, 2], [0, 1]])}, 4).lines
    assert line.get_ydata().tolist() == [0, 1, 2, 3, 3]
    scores = {"test": ff.types.Evaluation(np.zeros((1, 4)), np.zeros((1, 4)))}
    (line,) = plot.selections({"a": of_rounds([[0, 1], [0, 2], [0, 1]])._replace(scores=scores)}).lines
    assert line.get_ydata().tolist() == [0, 1, 2, 3, 3]  # the history knows how many clients there are
    absent = of_rounds([[0, 1], [0, 2], [0, 1]], active=np.array([[1, 1], [0, 1], [0, 0]]) > 0)
    (line,) = plot.selections({"a": absent}, 4).lines
    assert line.get_ydata().tolist() == [0, 1, 1, 1, 1]


def test_rules_of_which_the_same_clients_took_part_are_one_line_in_the_colour_of_the_first():
    some, others = of_rounds([[0, 1], [0, 2]]), of_rounds([[1, 2], [2, 0]])
    ax = plot.selections({"a": some, "b": some, "c": others}, 4)
    assert ax.get_legend_handles_labels()[1] == ["a and 1 more, alike", "c"]
    assert [to_hex(line.get_color()) for line in ax.lines] == [plot.COLOURS[0].lower(), plot.COLOURS[2].lower()]


def test_names_are_no_mathematics_and_none_is_missing_from_a_legend(final):
    odd = {"_mine": final["AFL"], "$^$": final["FedAvg"]}
    for draw in (plot.lorenz, plot.sorted_accuracy, plot.client_histogram, plot.frontier):
        ax = draw(odd if draw is not plot.frontier else {name: acc[:, None] for name, acc in odd.items()})
        ax.figure.draw_without_rendering()
        held = [text.get_text() for text in ax.get_yticklabels()] if ax.get_legend() is None else texts(ax)
        assert all(any(word in text for text in held) for word in ("_mine", r"\$^\$"))


def test_the_frontier_has_students_interval_over_the_seeds():
    acc = np.array([[0.5, 0.7], [0.6, 0.8], [0.7, 0.9]])  # means 60, 70, 80
    ax = plot.frontier({"a": acc, "one": acc[:1]})
    centre, halfwidth = plot.interval([60, 70, 80])
    assert (centre, round(halfwidth, 2)) == (70, 24.84)  # 4.303 * 10 / sqrt(3)
    assert ax.containers[0].lines[0].get_xydata()[0] == pytest.approx([70, 100])
    assert np.isnan(plot.interval([3.0])[1])
    many = np.arange(31.0)
    np.testing.assert_allclose(plot.interval(many)[1], 2.0423 * many.std(ddof=1) / np.sqrt(31), rtol=1e-4)
    with pytest.raises(ValueError, match=r"must be accuracies \[seeds, N\]"):
        plot.frontier({"a": acc[0]})


def test_a_frontier_of_clients_who_are_all_served_alike_has_an_axis_too():
    """A page warned of equal limits: there every variance is 0."""
    low, high = plot.frontier({"a": np.full((2, 3), 0.5), "b": np.full((2, 3), 0.6)}).get_ylim()
    assert low == 0 < high


def test_two_seeds_intervals_do_not_push_the_points_together():
    """With one degree of freedom they reach far beyond what an accuracy or a variance can be."""
    rng = np.random.default_rng(0)
    ax = plot.frontier({name: rng.uniform(0.4, 0.6, (2, 9)) for name in "abc"})
    points = np.concatenate([container.lines[0].get_xydata() for container in ax.containers])
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert left >= 0
    assert bottom >= 0
    assert right - left < 12 + 5 * np.ptp(points[:, 0])
    assert top < 5 * points[:, 1].max()
    assert ((points > (left, bottom)) & (points < (right, top))).all()


@pytest.mark.parametrize("draw", [plot.lorenz, plot.sorted_accuracy, plot.client_histogram, plot.frontier])
def test_histories_are_drawn_by_their_last_evaluation(draw):
    def line(ax):
        axes = ax[0] if isinstance(ax, tuple) else ax
        return [np.asarray(drawn.get_xydata()) for drawn in axes.get_figure(root=True).axes[0].get_lines()]

    seeds = [scored(seed) for seed in range(2)]
    wanted = line(draw({"a": np.stack([history.accuracy[-1] for history in seeds])}))
    for got, same in zip(line(draw({"a": seeds})), wanted, strict=True):
        np.testing.assert_array_equal(got, same)
    one = line(draw({"a": seeds[0]}))
    for got, same in zip(one, line(draw({"a": seeds[0].accuracy[-1:]})), strict=True):
        np.testing.assert_array_equal(got, same)


def test_histories_are_drawn_over_their_rounds():
    seeds = [scored(seed) for seed in range(2)]
    pair = seeds[0].rounds, np.stack([history.accuracy for history in seeds])
    for got, same in zip(plot.accuracy_and_fairness({"a": seeds}), plot.accuracy_and_fairness({"a": pair})):
        np.testing.assert_array_equal(got.get_lines()[0].get_xydata(), same.get_lines()[0].get_xydata())


def test_histories_of_different_lengths_are_one_sentence():
    long, short = scored(0), scored(1)
    short = short._replace(rounds=short.rounds[:2], scores={"test": ff.Evaluation(*[short.accuracy[:2]] * 2)})
    for draw in (plot.accuracy_and_fairness, plot.frontier):
        with pytest.raises(
            ValueError, match=r"as long and of as many clients, got accuracies \(3, 9\) and \(2, 9\)$"
        ):
            draw({"a": [long, short]})


def scored(seed):
    """A history of three evaluations of nine clients."""
    accuracy = np.random.default_rng(seed).uniform(0.4, 0.9, (3, 9)).astype(np.float32)
    history = of_rounds([[0, 1]])
    return history._replace(rounds=np.array([10, 20, 30]), scores={"test": ff.Evaluation(accuracy, accuracy)})


@pytest.mark.parametrize("clients", [6, 40])
def test_a_contribution_has_a_panel_for_each_measure_with_all_clients_in_one_order(clients):
    found = shares(clients)
    axes = plot.contribution(found)
    order = np.argsort(-found.shares["accuracy"])
    assert [ax.get_ylabel() for ax in axes] == ["Accuracy\n(points)", "Worst 10 %\n(points)", "Gini"]
    for ax, (measure, each) in zip(axes, found.shares.items()):
        if clients == 6:
            heights = [bar.get_height() for bar in ax.patches]
            colours = [to_hex(bar.get_facecolor()).upper() for bar in ax.patches]
        else:
            heights = ax.collections[0].get_offsets()[:, 1]
            colours = [to_hex(colour).upper() for colour in ax.collections[0].get_facecolor()]
        np.testing.assert_allclose(heights, each[order])
        good = (each[order] >= 0) if measure != "gini" else (each[order] <= 0)
        assert colours == [plot.COLOURS[0 if better else 1] for better in good]
        segments = np.array(ax.collections[-1].get_segments())[:, :, 1]
        np.testing.assert_allclose(segments.T, found.intervals()[measure][:, order])
    names = [text.get_text() for text in axes[-1].get_xticklabels()]
    assert clients > 6 or names == [str(k) for k in order]
    exact = plot.contribution(shares(clients, permutations=0))
    assert len(exact[0].collections) == (clients > 6)  # no intervals


def test_of_an_error_a_share_below_zero_is_a_good_one():
    error = metrics.kind.Metric(None, False, "cm", (0, float("inf")), "error")
    axes = plot.contribution(shares(6, metric=error))
    assert axes[1].get_ylabel() == "Worst 10 %\n(cm)"
    for bar in axes[0].patches:
        assert to_hex(bar.get_facecolor()).upper() == plot.COLOURS[int(bar.get_height() > 0)]
    with pytest.raises(ValueError, match=r"found must be an ff.contribution\(...\), got dict"):
        plot.contribution({})


def differing(*rules):
    """What ``comparison.differences()`` has of each rule."""
    kept = metrics.significance.paired([0.1, 0.2, 0.4], [0.0, 0.0, 0.0])
    return {rule: dict.fromkeys(("accuracy", "worst10"), SimpleNamespace(difference=kept)) for rule in rules}


@pytest.mark.parametrize(
    ("rules", "places"),
    [(None, (1, 2)), (["qfedavg", "fedavg", "afl"], (0, 2)), ({"afl": 0, "qfedavg": 1}, (1, 0))],
)
def test_a_rule_of_the_paired_figure_has_the_colour_of_its_place_among_all(rules, places):
    ax = plot.paired_frontier(differing("qfedavg", "afl"), "fedavg", rules=rules)
    assert ax.get_legend_handles_labels()[1] == ["qfedavg", "afl"]
    points = [container.lines[0] for container in ax.containers]
    assert [line.get_color() for line in points] == [plot.COLOURS[i] for i in places]
    assert [line.get_marker() for line in points] == [plot.MARKERS[i] for i in places]


def test_the_paired_figure_names_the_metric_that_was_compared():
    ax = plot.paired_frontier(differing("afl"), "fedavg")
    assert ax.get_xlabel() == "Mean client accuracy (points), minus fedavg"
    error = metrics.kind.Metric(None, False, "cm", (0, float("inf")), "error")
    for given in ({"metric": error}, {}):
        of = differing("afl") if given else Differences(differing("afl"), "fedavg", error)
        ax = plot.paired_frontier(of, "fedavg", **given)
        x, y = (" ".join(label.split()) for label in (ax.get_xlabel(), ax.get_ylabel()))
        assert x == "Mean client error (cm, lower is better), minus fedavg"
        assert y == "Mean of the worst 10 % of clients (cm, lower is better), minus fedavg"
        test_every_figure_fits_one_column(ax)


def test_the_paired_figure_refuses_an_order_that_lacks_a_rule():
    with pytest.raises(ValueError, match=r"^rules must name every rule of differences, got fedavg without afl$"):
        plot.paired_frontier(differing("afl"), "fedavg", rules=["fedavg"])


def test_of_many_clients_none_who_took_part_is_lost_between_the_pixels():
    ids = np.arange(20) * 53 % 1000
    shown = plot.coefficients(of_rounds([ids], [np.full(20, 0.05)]), 1000).images[0].get_array()
    assert shown.shape == (200, 1)
    assert np.flatnonzero(~np.isnan(np.ma.filled(shown, np.nan)[:, 0])).tolist() == sorted({*(ids // 5)})


@pytest.mark.parametrize("length", [20, 50, 90])
@pytest.mark.parametrize("draw", [plot.lorenz, plot.sorted_accuracy], ids=["lorenz", "sorted"])
def test_a_legend_stays_inside_its_figure_with_every_digit(draw, length, final):
    name = ("a_name_of_a_rule:q=0.1,lr=0.1," * 4)[:length]
    ax = draw({name: final["AFL"], "b": final["FedAvg"]})
    ax.figure.draw_without_rendering()
    held = ax.get_legend().get_window_extent()
    assert held.x0 >= 0
    assert held.x1 <= ax.figure.bbox.x1
    assert held.y1 <= ax.figure.bbox.y1


def test_classes_and_clients_are_shown_by_their_names():
    data = ff.FederatedData.from_arrays(np.ones((40, 1)), np.arange(40) // 20, client_id=["$a$", "b"] * 20)
    ax = plot.partition(data._replace(names=data.names._replace(labels=("_silence_", "$5-$10"))))
    ax.figure.draw_without_rendering()
    assert [text.replace("\u200a", "") for text in texts(ax)] == ["_silence_", r"\$5-\$10"]
    assert ax.get_xticklabels()[0].get_text() == r"\$a\$"


def test_one_client_has_a_level_line():
    assert plot.sorted_accuracy({"a": [0.4]}).lines[0].get_xydata().tolist() == [[0, 40], [100, 40]]


def test_a_rule_without_a_difference_says_so():
    of = differing("afl", "lost")
    missing = metrics.significance.paired([0.1, np.nan], [0.0, 0.0])
    of["lost"] = dict.fromkeys(("accuracy", "worst10"), SimpleNamespace(difference=missing))
    labels = plot.paired_frontier(of, "fedavg").get_legend_handles_labels()[1]
    assert labels == ["afl", "lost (no difference known)"]
