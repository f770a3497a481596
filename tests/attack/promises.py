"""What results say of themselves, compared with a dense Cholesky factorisation in float64."""

from __future__ import annotations

import sys
from collections import Counter

import jax
import numpy as np
from scipy.linalg import cho_factor, cho_solve

import dualgp as dg

N, NEW = 300, 40
KERNELS = (dg.RBF, dg.Matern12, dg.Matern32, dg.Matern52)
SLACK = 1.0 + 1e-6  # the reference rounds too


def problem(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, dg.Kernel, float, str]:
    """Data, new points next to them and elsewhere, and a model; one time in three with contradictions."""
    d = int(rng.choice([1, 3, 9, 20]))
    x = rng.normal(size=(N, d)) * float(rng.choice([1.0, 1.0, 50.0]))
    if rng.random() < 0.3:
        x[N // 2 :] = x[: N // 2] + 1e-3 * rng.normal(size=(N // 2, d))
    y = np.sin(x[:, 0]) + 0.3 * rng.normal(size=N)
    near = x[: NEW // 2] + 1e-3 * rng.normal(size=(NEW // 2, d))
    new = np.concatenate([near, 2.0 * rng.normal(size=(NEW // 2, d))])
    scale = np.sqrt(d) * 10.0 ** rng.uniform(-2, 2)
    kernel = KERNELS[int(rng.integers(4))](float(scale), float(10.0 ** rng.uniform(-1, 1)))
    return x, y, new, kernel, float(10.0 ** rng.uniform(-4, 0)), str(rng.choice(["float32", "float64"]))


def dense(kernel: dg.Kernel, x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """k(x, other) by differences, in float64."""
    squared = ((x[:, None] - other[None]) ** 2).sum(axis=2) / float(kernel.lengthscale) ** 2
    r = np.sqrt(squared)
    shape = {
        dg.RBF: lambda: np.exp(-squared / 2),
        dg.Matern12: lambda: np.exp(-r),
        dg.Matern32: lambda: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        dg.Matern52: lambda: (1 + np.sqrt(5) * r + 5 * squared / 3) * np.exp(-np.sqrt(5) * r),
    }[type(kernel)]()
    return float(kernel.variance) * shape


def check(seed: int) -> dict[str, tuple[bool, str]]:
    """For each promise of one problem whether it is kept, and by how much."""
    rng = np.random.default_rng(seed)
    x, y, new, kernel, noise, dtype = problem(rng)
    x, new = (array.astype(dtype).astype(np.float64) for array in (x, new))  # the problem that is solved
    solver = (dg.BlockDescent(block_size=64), dg.CG(), "auto")[int(rng.integers(3))]
    post = dg.GaussianProcess(kernel, noise).condition(
        x, y, solver=solver, num_samples=4, num_features=128, key=jax.random.key(seed), dtype=dtype, max_passes=200
    )
    matrix = dense(kernel, x, x) + noise * np.eye(N)
    weights = cho_solve(cho_factor(matrix, lower=True), y)
    off = np.abs(np.asarray(post.mean(new), np.float64) - dense(kernel, new, x) @ weights)
    targets = np.asarray(post.targets, np.float64)
    residual = targets - matrix @ np.asarray(post.weights, np.float64)
    relative = np.linalg.norm(residual, axis=0) / np.linalg.norm(targets, axis=0)
    everywhere, at_points = post.error_bound(), post.error_bound(new)
    upper = np.asarray(post.solution.residual_upper, np.float64)
    worst = relative.max()
    what = f"seed {seed}: {type(kernel).__name__} {dtype} {solver} d={x.shape[1]} noise={noise:.2g}"
    rounding = 1e-13 * float(kernel.variance) * np.abs(weights).sum()  # of the reference itself
    kept = {
        "bound everywhere": (off.max() <= everywhere * SLACK + rounding, f"{off.max():.3g} > {everywhere:.3g}"),
        "bound at points": (
            bool(np.all(off <= at_points * SLACK + rounding)),
            f"{(off / at_points).max():.3g} times the bound",
        ),
        "residual upper": (bool(np.all(relative <= upper * SLACK + 1e-13)), f"{(relative / upper).max():.3g} times"),
    }
    if post.solution.result is dg.solvers.Result.CONVERGED and hasattr(post.solution.solver, "tol"):
        kept["converged"] = worst <= post.solution.solver.tol * SLACK, f"{worst:.3g} > {post.solution.solver.tol:g}"
    return {name: (bool(is_kept), f"{what}: {name} {why}") for name, (is_kept, why) in kept.items()}


def attack(number: int = 300, seed: int = 0) -> Counter:
    """Promises checked and violated, over at least so many."""
    counts: Counter = Counter(checked=0, violated=0)
    while counts["checked"] < number:
        for is_kept, why in check(seed * 100_003 + counts["problems"]).values():
            counts["checked"] += 1
            counts["violated"] += not is_kept
            if not is_kept:
                print(f"  violated: {why}", file=sys.stderr)
        counts["problems"] += 1
    return counts
