"""A Gaussian process on 50,000 noisy points, 64 functions from its posterior, and a picture of a slice through it."""

import argparse
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import dualgp as dg


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--points", type=int, default=50_000)
    arguments.add_argument("--picture", type=Path, default=Path("demo.png"))
    options = arguments.parse_args()

    truth = dg.GaussianProcess(dg.Matern32(lengthscale=0.2), noise=0.1)
    f, rng = truth.sample_prior(2, 1, key=jax.random.key(1)), np.random.default_rng(1)
    x, x_test = (outside_the_hole(rng.random((n, 2), np.float32)) for n in (2 * options.points, 3000))
    x, f_test = x[: options.points], f(x_test)[0]
    y = f(x)[0] + np.float32(0.1**0.5) * rng.standard_normal(len(x), np.float32)
    print(f"Conditioning on {len(x):,} noisy points, mean and 64 function samples together.", flush=True)

    began = time.perf_counter()
    posterior = truth.condition(x, y, num_samples=64, key=jax.random.key(0), progress=True)
    print(posterior.report())
    mean, std = posterior.predict(x_test)
    print(f"RMSE to the true function    {dg.metrics.rmse(f_test, mean):.4f}  (noise of the data: {0.1**0.5:.4f})")
    print(f"Coverage of the 95 % band    {100 * dg.metrics.coverage(f_test, mean, std):.1f} %")
    print(f"Residual                     {posterior.solution.residual.max():.2g}")
    print(f"Passes over K                {posterior.solution.passes:.1f}")
    print(f"Seconds, prediction included {time.perf_counter() - began:.1f}")
    draw(posterior, x, y, options.picture)
    print(f"Picture                      {options.picture}")


def outside_the_hole(x: np.ndarray) -> np.ndarray:
    """Without a patch of the square, so that there is something to be uncertain about."""
    return x[~((np.abs(x[:, 0] - 0.62) < 0.08) & (np.abs(x[:, 1] - 0.6) < 0.2))]


def draw(posterior: dg.Posterior, x: np.ndarray, y: np.ndarray, picture: Path) -> None:
    """Data near the line x2 = 0.6, the mean, the 95 % band and a few posterior functions along it."""
    grid = np.linspace(0, 1, 500, dtype=np.float32)
    line = np.stack([grid, np.full_like(grid, 0.6)], axis=1)
    mean, std = posterior.predict(line)
    near = np.abs(x[:, 1] - 0.6) < 0.003
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    axes.scatter(x[near, 0], y[near], s=6, color="0.55", linewidths=0, label="data near the slice")
    axes.fill_between(grid, mean - 1.96 * std, mean + 1.96 * std, color="#4477aa", alpha=0.22, label="95 % band", lw=0)
    functions = posterior.samples[:6](line)
    axes.plot(grid, functions.T, color="#ee6677", lw=0.8, alpha=0.75, label=["posterior functions", *5 * [None]])
    axes.plot(grid, mean, color="#223355", lw=1.8, label="mean")
    axes.set(xlabel="$x_1$  (at $x_2 = 0.6$)", ylabel="$f(x)$", xlim=(0, 1))
    axes.set_title(f"A Gaussian process conditioned on all of {len(x):,} points", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main()
