"""Work that is killed and goes on: python victims.py solve|campaign|fit folder. The result is folder/result.npz."""

import sys
from pathlib import Path

import jax
import numpy as np

import dualgp as dg
from dualgp.solvers import iterate


def solve(folder: Path) -> dict[str, np.ndarray]:
    iterate.CHECKPOINT_SECONDS = 0.0  # after every chunk of steps
    x = np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32)
    operator = dg.KernelOperator(dg.Matern32(0.5), x, 0.003)
    b = np.stack([np.sin(x[:, 0]), np.cos(x[:, 1])], axis=1)
    solver = dg.BlockDescent(block_size=300, tol=1e-4)
    solution = dg.solve(operator, b, solver, key=jax.random.key(0), checkpoint=folder / "state")
    return {"weights": np.asarray(solution.weights), "steps": np.asarray(solution.steps)}


def campaign(folder: Path) -> dict[str, np.ndarray]:
    search = dg.Search(num_rounds=2, num_candidates=64, num_starts=1, num_steps=5)
    sampler = dg.ThompsonSampler([(-1, 1)] * 2, key=jax.random.key(0), search=search, path=folder / "state")
    while len(sampler.state.y) < 16:
        x = sampler.ask(2)
        sampler.tell(x, -np.sum((x - 0.3) ** 2, axis=1))
    return {"x": sampler.state.x, "y": sampler.state.y}


def fit(folder: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = np.sin(3.0 * x[:, 0]) + np.cos(x[:, 1]) + 0.1 * rng.normal(size=600)
    fitted = dg.GPRegressor(n_samples=2, checkpoint=folder / "state").fit(x, y)
    mean, std = fitted.predict(x[:50], return_std=True)
    return {
        "mean": mean,
        "std": std,
        "noise": np.asarray(fitted.noise_),
        "functions": fitted.sample_functions()(x[:50]),
    }


if __name__ == "__main__":
    work, place = {"solve": solve, "campaign": campaign, "fit": fit}[sys.argv[1]], Path(sys.argv[2])
    np.savez(place / "result.npz", **work(place))
