"""Draws the pictures of the documentation that take seconds; docs/gallery/index.md says which script draws the others.

    python docs/pictures.py                     all of them
    python docs/pictures.py bands offers        some: fields, bands, offers, batch, convergence, noise

fields: what benchmarks/near_far.py has measured. bands: solves that were stopped early against the exact posterior.
offers: houses for sale, from examples/data. batch: experiments proposed at once. convergence: all solvers.
noise: weights, outliers, and noise that depends on the inputs.
"""

import json
import sys
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pandas

import dualgp as dg

matplotlib.use("Agg")
from matplotlib import pyplot

ROOT = Path(__file__).parents[1]
PICTURES, RESULTS = ROOT / "docs" / "pictures", ROOT / "benchmarks" / "results" / "near_far.jsonl"
BLUE, DARK, RED, YELLOW, GREEN, GREY = "#4477aa", "#223355", "#ee6677", "#ccbb44", "#228833", "0.55"
STOPS = (0.02, 0.2, 5.0)  # passes over the kernel matrix


def save(figure: pyplot.Figure, name: str) -> None:
    """Without the frame's upper and right lines."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURES / f"{name}.png", dpi=150)


def fields() -> None:
    """RMSE against passes: far field alone, neighbours alone, both, and the exact GP."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    names = ("pol", "elevators", "bike")
    figure, panels = pyplot.subplots(1, len(names), figsize=(10, 3.2), layout="constrained")
    for panel, name in zip(panels, names, strict=True):
        found = {line["what"]: line for line in lines if line["of"] == name}
        budgets, passes = found["budgets"], (0.25, 0.5, 1.0, 2.0, 3.0)
        for label, what, color in (("far", "far field alone", BLUE), ("both", "both", DARK)):
            panel.plot(passes, [budgets[f"{label} {p}"]["rmse"] for p in passes], "o-", ms=3, color=color, label=what)
        panel.axhline(budgets["near 128"]["rmse"], color=YELLOW, lw=1.2, label="128 neighbours alone")
        panel.axhline(found["default"]["exact"]["rmse"], color=RED, lw=1, ls="--", label="exact")
        panel.set(title=name, xlabel="passes over the kernel matrix", yscale="log")
        panel.minorticks_off()
        panel.set_yticks(ticks := [budgets[f"far {p}"]["rmse"] for p in (0.25, 1.0)] + [budgets["both 3.0"]["rmse"]])
        panel.set_yticklabels([f"{tick:.3g}" for tick in ticks])
    panels[0].set_ylabel("test RMSE")
    panels[-1].legend(frameon=False, fontsize=8)
    save(figure, "near_far")


def bands() -> None:
    """One panel for each moment at which SDD is stopped; below, the ratio of the standard deviations."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 0.42, 600), rng.uniform(0.62, 1, 600)])[:, None]
    y = np.sin(14 * x[:, 0]) * (0.5 + x[:, 0]) + 0.3 * rng.normal(size=len(x))
    model = dg.GaussianProcess(dg.Matern32(0.15), noise=0.09)
    grid = np.linspace(0, 1, 400)[:, None]
    mean, std = model.condition(x, y, solver=dg.Cholesky(), num_samples=0).predict(grid)
    sizes = {"figsize": (10, 5), "sharex": True, "sharey": "row", "height_ratios": [2, 1]}
    figure, panels = pyplot.subplots(2, 3, **sizes, layout="constrained")
    for (above, below), passes in zip(panels.T, STOPS, strict=True):
        solver = dg.SDD(batch_size=24, num_steps=round(passes * len(x) / 24), tol=0.0)
        early = model.condition(x, y, solver=solver, num_samples=1000, neighbours=0, key=jax.random.key(1))
        early_mean, early_std = early.predict(grid)
        ends = early_mean - 1.96 * early_std, early_mean + 1.96 * early_std
        above.plot(x[:, 0], y, ".", ms=1.5, color="0.75")
        above.fill_between(grid[:, 0], *ends, color=BLUE, alpha=0.25, lw=0, label="95 % band, stopped early")
        above.plot(grid[:, 0], early_mean, color=DARK, lw=1.6, label="mean, stopped early")
        above.plot(grid[:, 0], mean, color=RED, lw=1.2, label="exact mean and band")
        for end in (-1.96, 1.96):
            above.plot(grid[:, 0], mean + end * std, color=RED, lw=0.8, ls="--")
        above.set_title(f"SDD after {passes:g} passes", fontsize=10)
        below.plot(grid[:, 0], early_std / std, color=BLUE, lw=1.4)
        below.axhline(1.0, color=RED, lw=1)
        below.set(xlabel="x", yscale="log", xlim=(0, 1))
    panels[0, 0].set(ylabel="f(x)", ylim=(-2.3, 2.9))
    panels[1, 0].set_ylabel("std / exact std")
    panels[0, 2].legend(frameon=False, fontsize=8, loc="upper right")
    save(figure, "uncertainty")


def offers() -> None:
    """What 40 houses should fetch, and what is asked for them."""
    sold, offers = (pandas.read_csv(ROOT / "examples" / "data" / f"{name}.csv") for name in ("houses", "offers"))
    regressor = dg.GPRegressor(random_state=0).fit(sold.drop(columns="price"), sold.price)
    levels = [0.05, 0.5, 0.95]
    low, middle, high = regressor.predict(offers.drop(columns="asked"), quantiles=levels).T
    order, asked = np.argsort(middle), offers.asked.to_numpy()
    figure, axes = pyplot.subplots(figsize=(10, 4), layout="constrained")
    places = np.arange(len(order))
    axes.vlines(places, low[order], high[order], color=BLUE, alpha=0.35, lw=6, label="90 % of such houses fetch this")
    axes.plot(places, middle[order], "_", ms=9, mew=1.6, color=DARK, label="half of them fetch more")
    colours = np.where(asked < low, GREEN, np.where(asked > high, RED, "0.35"))[order]
    axes.scatter(places, asked[order], s=26, color=colours, zorder=3)
    for colour, label in ((GREEN, "below the band, cheap"), ("0.35", "inside, fair"), (RED, "above it, dear")):
        axes.scatter([], [], s=26, color=colour, label=f"asked: {label}")
    axes.set(ylabel="price in thousands", xlim=(-1, len(order)), xticks=[], yscale="log")
    axes.set_yticks([400, 800, 1600], ["400", "800", "1,600"])
    axes.minorticks_off()
    axes.set_xlabel("40 houses for sale, in the order of what they should fetch")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    save(figure, "offers")


def batch() -> None:
    """Fifty experiments proposed at once after 8 results: each is the best place of one posterior function."""

    def hidden(x: np.ndarray) -> np.ndarray:
        bumps = ((0.75, 0.25, 1.0), (0.25, 0.7, 0.93), (0.8, 0.8, 0.7), (0.2, 0.15, 0.5))
        return sum(height * np.exp(-30 * np.sum((x - [a, b]) ** 2, axis=1)) for a, b, height in bumps)

    side = np.linspace(0, 1, 120)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.7), sharey=True, layout="constrained")
    model = dg.GaussianProcess(dg.Matern52(0.2, 0.2), noise=1e-4)
    sampler = dg.ThompsonSampler([(0, 1), (0, 1)], model=model, relearn=None, key=jax.random.key(1))
    told = np.random.default_rng(3).uniform(size=(8, 2))
    sampler.tell(told, hidden(told))
    for panel, title in zip(panels, ("first batch of 50", "second batch", "third batch"), strict=True):
        points = sampler.ask(50)
        panel.contourf(side, side, hidden(grid).reshape(120, 120), levels=12, cmap="Blues", alpha=0.8)
        panel.scatter(*told.T, s=10, color="0.3", lw=0, label="results so far")
        panel.scatter(*points.T, s=20, color=RED, edgecolor="white", lw=0.4, label="proposed")
        panel.set(title=title, xlim=(0, 1), ylim=(0, 1), xticks=[0, 1], yticks=[0, 1], aspect="equal")
        sampler.tell(points, hidden(points))
        told = np.concatenate([told, points])
    panels[0].legend(frameon=True, fontsize=8, loc="lower left")
    save(figure, "batch")


def convergence() -> None:
    """The residual of every solver against passes, on 6,000 points of six inputs."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(6000, 6)).astype(np.float32)
    y = np.sin(6 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=6000)
    operator = dg.KernelOperator(dg.Matern32(0.7), x, noise=0.01)
    solvers = {
        "block descent (default)": (dg.BlockDescent(tol=1e-4), DARK),
        "SDD, automatic": (dg.SDD(tol=1e-4), BLUE),
        "CG, rank 100": (dg.CG(tol=1e-4, preconditioner=dg.PivotedCholesky(rank=100)), GREEN),
    }
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, (solver, colour) in solvers.items():
        trace = dg.solve(operator, y, solver, key=jax.random.key(0), max_passes=200).trace
        axes.plot(trace.passes, trace.residual[:, 0], color=colour, lw=1.6, label=name)
    axes.axhline(1e-2, color=RED, lw=0.8, ls="--")
    axes.set(
        xscale="log", yscale="log", xlabel="passes over the kernel matrix", ylabel="relative residual", ylim=(1e-4, 2)
    )
    axes.legend(frameon=False, fontsize=9)
    save(figure, "convergence")


def noise() -> None:
    """Fits with and without: weights, outliers, and noise that depends on the inputs."""
    rng = np.random.default_rng(0)
    grid, truth = np.linspace(0, 1, 300)[:, None], lambda x: np.sin(9 * x[:, 0])
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")

    def show(panel: pyplot.Axes, data: tuple, size: object, *fits: tuple) -> None:
        """Mean and 90 % band of new observations by two regressors."""
        for settings, weights, colour, label in fits:
            fitted = dg.GPRegressor(random_state=0, **settings).fit(*data, sample_weight=weights)
            low, high = fitted.predict(grid, quantiles=[0.05, 0.95]).T
            panel.fill_between(grid[:, 0], low, high, color=colour, alpha=0.18, lw=0)
            panel.plot(grid, fitted.predict(grid), color=colour, lw=1.6, label=label, zorder=3)
        panel.scatter(*data, s=size, color=DARK, lw=0, zorder=2)

    x = rng.uniform(0, 1, (250, 1))
    exact = rng.uniform(size=250) < 0.1
    y = truth(x) + np.where(exact, 0.05, 0.8) * rng.normal(size=250)
    fits = ({}, None, RED, "equal weights"), ({}, np.where(exact, 256.0, 1.0), BLUE, "sample_weight")
    show(panels[0], (x, y), np.where(exact, 14, 3), *fits)
    y = truth(x) + 0.15 * rng.normal(size=250)
    y[rng.permutation(250)[:25]] += rng.uniform(2, 6, 25)
    show(panels[1], (x, y), 3, ({}, None, RED, "plain"), ({"robust": True}, None, BLUE, "robust=True"))
    x = rng.uniform(0, 1, (800, 1))
    y = truth(x) + 0.08 * 10.0 ** x[:, 0] * rng.normal(size=800)
    varying = {"noise": "input-dependent"}, None, BLUE, "input-dependent"
    show(panels[2], (x, y), 2, ({}, None, RED, "one noise"), varying)
    for panel, title in zip(panels, ("weights", "outliers", "noise that depends on the inputs"), strict=True):
        panel.set(title=title, ylim=(-3, 5), xlabel="x")
        panel.legend(frameon=False, fontsize=8, loc="lower left")
    save(figure, "noise")


def main() -> None:
    """Those that are named, or all."""
    PICTURES.mkdir(exist_ok=True)
    drawings = {draw.__name__: draw for draw in (fields, bands, offers, batch, convergence, noise)}
    for name in sys.argv[1:] or drawings:
        drawings[name]()


if __name__ == "__main__":
    main()
