"""Draws docs/uncertainty.png: bands of solves that were stopped early, far fields alone, against the exact posterior;
and docs/near_far.png: what benchmarks/near_far.py has measured of fields and passes.

python docs/pictures.py
"""

import json
from pathlib import Path

import jax
import matplotlib
import numpy as np

import dualgp as dg

matplotlib.use("Agg")
from matplotlib import pyplot

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "near_far.jsonl"
SHARES = (0.02, 0.2, 5.0)  # passes over the kernel matrix


def draw_fields() -> None:
    """RMSE against passes: far field alone, neighbours alone, both, and the exact GP."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    names = ("pol", "elevators", "bike")
    figure, panels = pyplot.subplots(1, len(names), figsize=(10, 3.2), layout="constrained")
    for panel, name in zip(panels, names, strict=True):
        found = {what: line for line in lines if line["of"] == name for what in [line["what"]]}
        budgets, passes = found["budgets"], (0.25, 0.5, 1.0, 2.0, 3.0)
        for label, what, color in (("far", "far field alone", "#4477aa"), ("both", "both", "#223355")):
            panel.plot(passes, [budgets[f"{label} {p}"]["rmse"] for p in passes], "o-", ms=3, color=color, label=what)
        panel.axhline(budgets["near 128"]["rmse"], color="#ccbb44", lw=1.2, label="128 neighbours alone")
        panel.axhline(found["default"]["exact"]["rmse"], color="#ee6677", lw=1, ls="--", label="exact")
        panel.set(title=name, xlabel="passes over the kernel matrix", yscale="log")
        panel.minorticks_off()
        panel.set_yticks(ticks := [budgets[f"far {p}"]["rmse"] for p in (0.25, 1.0)] + [budgets["both 3.0"]["rmse"]])
        panel.set_yticklabels([f"{tick:.3g}" for tick in ticks])
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("test RMSE")
    panels[-1].legend(frameon=False, fontsize=8)
    figure.savefig(Path(__file__).with_name("near_far.png"), dpi=150)


def main() -> None:
    """One panel for each moment at which the solve is stopped."""
    draw_fields()
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 0.42, 600), rng.uniform(0.62, 1, 600)])[:, None]
    y = np.sin(14 * x[:, 0]) * (0.5 + x[:, 0]) + 0.3 * rng.normal(size=len(x))
    model = dg.GaussianProcess(dg.Matern32(0.15), noise=0.09)
    exact = model.condition(x, y, solver=dg.Cholesky(), num_samples=0)
    grid = np.linspace(0, 1, 400)[:, None]
    mean, std = exact.predict(grid)
    figure, panels = pyplot.subplots(
        2, 3, figsize=(10, 5), sharex=True, sharey="row", height_ratios=[2, 1], layout="constrained"
    )
    for (above, below), passes in zip(panels.T, SHARES, strict=True):
        solver = dg.SDD(batch_size=24, num_steps=round(passes * len(x) / 24), tol=0.0)
        early = model.condition(x, y, solver=solver, num_samples=1000, neighbours=0, key=jax.random.key(1))
        early_mean, early_std = early.predict(grid)
        above.plot(x[:, 0], y, ".", ms=1.5, color="0.75")
        above.fill_between(
            grid[:, 0], early_mean - 1.96 * early_std, early_mean + 1.96 * early_std, color="#4477aa", alpha=0.25, lw=0
        )
        above.plot(grid[:, 0], early_mean, color="#223355", lw=1.6, label="stopped early, 95 % band")
        above.plot(grid[:, 0], mean, color="#ee6677", lw=1.2, label="exact, 95 % band")
        for end in (-1.96, 1.96):
            above.plot(grid[:, 0], mean + end * std, color="#ee6677", lw=0.8, ls="--")
        above.set_title(f"after {passes:g} passes (residual {early.solution.residual.max():.2g})", fontsize=10)
        below.plot(grid[:, 0], early_std / std, color="#4477aa", lw=1.4)
        below.axhline(1.0, color="#ee6677", lw=1)
        below.set(xlabel="x", yscale="log", xlim=(0, 1))
    panels[0, 0].set(ylabel="f(x)", ylim=(-2.3, 2.3))
    panels[1, 0].set_ylabel("std / exact std")
    panels[0, 2].legend(frameon=False, fontsize=8, loc="lower right")
    for axes in panels.ravel():
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_name("uncertainty.png"), dpi=150)


if __name__ == "__main__":
    main()
