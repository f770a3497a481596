"""Draws docs/howto/noise.png: weights, outliers and noise that depends on the inputs.

python docs/howto/noise_pictures.py
"""

from pathlib import Path

import matplotlib
import numpy as np

import dualgp as dg

matplotlib.use("Agg")
from matplotlib import pyplot

GRID = np.linspace(0, 1, 300)[:, None]
BLUE, RED, DARK = "#4477aa", "#ee6677", "#223355"


def truth(x):
    """The function."""
    return np.sin(9 * x[:, 0])


def show(panel, fitted, color, label):
    """Mean and 90 % band of new observations."""
    low, high = fitted.predict(GRID, quantiles=[0.05, 0.95]).T
    panel.fill_between(GRID[:, 0], low, high, color=color, alpha=0.18, lw=0)
    panel.plot(GRID, fitted.predict(GRID), color=color, lw=1.6, label=label)


def main() -> None:
    """A panel for each."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (250, 1))
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.2), sharey=True, layout="constrained")
    exact = rng.uniform(size=250) < 0.15
    y = truth(x) + np.where(exact, 0.05, 0.8) * rng.normal(size=250)
    weights = np.where(exact, 256.0, 1.0)
    show(panels[0], dg.GPRegressor(random_state=0).fit(x, y), RED, "equal weights")
    show(panels[0], dg.GPRegressor(random_state=0).fit(x, y, sample_weight=weights), BLUE, "sample_weight")
    panels[0].scatter(x, y, s=np.where(exact, 14, 3), color=DARK, zorder=3)
    y = truth(x) + 0.15 * rng.normal(size=250)
    bad = rng.permutation(250)[:25]
    y[bad] += rng.uniform(2, 6, 25)
    show(panels[1], dg.GPRegressor(random_state=0).fit(x, y), RED, "plain")
    show(panels[1], dg.GPRegressor(robust=True, random_state=0).fit(x, y), BLUE, "robust=True")
    panels[1].scatter(x, y, s=3, color=DARK, zorder=3)
    x = rng.uniform(0, 1, (800, 1))
    y = truth(x) + 0.08 * 10.0 ** x[:, 0] * rng.normal(size=800)
    show(panels[2], dg.GPRegressor(random_state=0).fit(x, y), RED, "one noise")
    show(panels[2], dg.GPRegressor(noise="input-dependent", random_state=0).fit(x, y), BLUE, "input-dependent")
    panels[2].scatter(x, y, s=2, color=DARK, zorder=3)
    for panel, title in zip(panels, ("weights", "outliers", "noise that depends on the inputs"), strict=True):
        panel.set(title=title, ylim=(-3, 5), xlabel="x")
        panel.legend(frameon=False, fontsize=8, loc="upper left")
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_name("noise.png"), dpi=150)


if __name__ == "__main__":
    main()
