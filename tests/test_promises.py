"""What a posterior promises about its errors, on random problems that try to break it. The oracle is dense, in float64.

`python tests/test_promises.py 300` tries the seeds below 300 and prints every promise that was broken.
"""

import sys
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

import dualgp as dg
from cases import KERNELS, PER_DIMENSION, gram, inputs

NUM_SAMPLES, NUM_POINTS = 64, 60
SOLVERS = {"BlockDescent": (dg.BlockDescent(), 20.0), "SDD": (dg.SDD(), 60.0)}  # each with the passes it may take
ROUNDING = {np.float32: 1e-5, np.float64: 1e-8}  # of y's size: neither the mean nor the oracle is known better
ORACLE = 2e-15  # times n / noise: the error of its variances, where k(x, x) is 1
FEATURES = 0.1  # what 4,096 random features may take from a variance
SURE = 4.5  # standard errors

# Together every class of kernels, both precisions, both solvers and every kind of repeated rows. The last two are the
# worst of 160 in an early version: a residual of 0.25 that was 0.48, and a bound of 8.5 where the error was 43.
SEEDS = (0, 2, 5, 10, 12, 15, 26, 27, 28, 29, 1113, 1172)


@dataclass(frozen=True)
class Problem:
    """Data and how to solve them. Lengthscales are about 1, so that `size` is the range of x in lengthscales."""

    seed: int
    kernel: str
    n: int
    d: int
    noise: float
    dtype: type
    size: float
    repeated: str
    solver: str
    kept: bool

    def __str__(self) -> str:
        rows = f"n={self.n} d={self.d} range={self.size:.2g} rows={self.repeated}"
        how = f"{self.dtype.__name__} {self.solver} {'K kept' if self.kept else 'K not kept'}"
        return f"seed {self.seed}: {self.kernel} {rows} noise={self.noise:.1e} {how}"


class Violation(NamedTuple):
    """A promise, where it was broken, what was promised and what was found."""

    promise: str
    where: str
    promised: float
    found: float


def draw_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    kernel = list(KERNELS)[seed % len(KERNELS)]
    fixed = kernel.endswith("per-dimension") or kernel in ("sum", "product", "sum-times-kernel")
    return Problem(
        seed=seed,
        kernel=kernel,
        n=int(rng.integers(300, 1501)),
        d=len(PER_DIMENSION) if fixed else int(rng.integers(3 if kernel in ("On", "mixed") else 1, 21)),
        noise=float(10 ** rng.uniform(-6, 0)),
        dtype=rng.choice([np.float32, np.float64]),
        size=float(1.0 / np.exp(rng.uniform(np.log(0.05), np.log(3.0)))),
        repeated=str(rng.choice(["new", "near", "equal"])),
        solver=str(rng.choice(list(SOLVERS))),
        kept=bool(rng.integers(2)),
    )


def draw_data(problem: Problem) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Rows, targets and points to predict at, in the precision in which they are solved.

    Where rows are repeated, or nearly so, their targets disagree by more than the noise: the weights are large.
    """
    rng, kernel = np.random.default_rng((problem.seed, 1)), KERNELS[problem.kernel]
    n, d = problem.n, problem.d
    x, scatter = rng.uniform(0.0, problem.size, (n, d)), np.sqrt(problem.noise)
    if problem.repeated != "new":
        offset = 10 ** rng.uniform(-4, -1) if problem.repeated == "near" else 0.0
        x = x[np.arange(n) % (n // rng.integers(2, 20))] + offset * rng.normal(size=(n, d))
        scatter = 1.0
    near = x[:NUM_POINTS] + 1e-2 * rng.normal(size=(NUM_POINTS, d))
    new = rng.uniform(0.0, problem.size, (NUM_POINTS, d))
    x, near, new = (inputs(kernel, points).astype(problem.dtype) for points in (x, near, new))
    wave = np.sin(x @ rng.normal(size=d) * 3.0 / np.sqrt(d))
    y = (wave + scatter * rng.normal(size=n)).astype(problem.dtype)
    return x, y, {"data": x[:NUM_POINTS], "near data": near, "new points": new}


def condition(problem: Problem, x: np.ndarray, y: np.ndarray) -> dg.Posterior:
    solver, max_passes = SOLVERS[problem.solver]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a solution that diverged makes promises too
        return dg.GaussianProcess(KERNELS[problem.kernel], problem.noise).condition(
            x,
            y,
            solver=solver,
            max_passes=max_passes,
            num_samples=NUM_SAMPLES,
            memory=1 << 30 if problem.kept else 0,
            key=jax.random.key(problem.seed),
        )


def check_problem(seed: int) -> list[Violation]:
    """The promises that are broken on one random problem."""
    problem = draw_problem(seed)
    kernel, (x, y, points) = KERNELS[problem.kernel], draw_data(problem)
    posterior = condition(problem, x, y)
    matrix, target = gram(kernel, x) + problem.noise * np.eye(problem.n), y.astype(np.float64)
    factor = cho_factor(matrix)
    rounding = ROUNDING[problem.dtype]

    residual = relative_residual(posterior)
    violations = []
    upper = float(posterior.solution.residual_upper[0])
    if not residual <= 1.01 * upper + rounding:
        violations.append(Violation("residual", "weights", upper, residual))
    for where, at in points.items():
        cross = gram(kernel, x, at)
        mean, std = (np.asarray(values, np.float64) for values in posterior.predict(at))
        error = np.abs(mean - cross.T @ cho_solve(factor, target)) - rounding * np.abs(target).max()
        for promise, bound in {"bound": posterior.error_bound(), "bound at x": posterior.error_bound(at)}.items():
            bound = np.broadcast_to(bound, error.shape)
            worst = int(np.argmax(error - bound))
            if not error[worst] <= bound[worst]:  # also where either is not a number
                violations.append(Violation(promise, where, float(bound[worst]), float(error[worst])))
        covariance = gram(kernel, at) - cross.T @ cho_solve(factor, cross)
        known = np.diagonal(covariance) > ORACLE * problem.n / problem.noise * np.diagonal(gram(kernel, at)) ** 2
        violations += check_deviation(where, std[known], covariance[np.ix_(known, known)])
    return violations


def relative_residual(posterior: dg.Posterior) -> float:
    """That of the equations that were solved: equal rows were merged."""
    x, b, weights = (np.asarray(a, np.float64) for a in (posterior.x, posterior.targets, posterior.solution.weights))
    noise = posterior.row_noise.diagonal(np.arange(len(x)), np.float64)
    rest = b[:, 0] - gram(posterior.model.kernel, x) @ weights[:, 0] - noise * weights[:, 0]
    return float(np.linalg.norm(rest) / np.linalg.norm(b[:, 0]))


def check_deviation(where: str, std: np.ndarray, covariance: np.ndarray) -> list[Violation]:
    """The average of std^2 / exact variance over the points whose variance the oracle knows.

    For s samples and the correlations C of m points it is 1 +- sqrt(2 tr(C^2) / s) / m, and above 1 where the solution
    is far from the exact one.
    """
    if len(std) == 0:
        return []
    exact = np.sqrt(np.diagonal(covariance))
    correlation = covariance / np.outer(exact, exact)
    chance = SURE * float(np.sqrt(2.0 * np.sum(correlation**2) / NUM_SAMPLES)) / len(exact)
    ratio, least = float(np.mean((std / exact) ** 2)), 1.0 - chance - FEATURES
    return [] if ratio >= least else [Violation("variance ratio", where, least, ratio)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed):
    assert check_problem(seed) == [], draw_problem(seed)


def main(num: int) -> None:
    broken = 0
    for seed in range(num):
        violations = check_problem(seed)
        broken += bool(violations)
        for violation in violations:
            promise, where, promised, found = violation
            print(f"{draw_problem(seed)}: {promise} at {where}: promised {promised:.3g}, found {found:.3g}", flush=True)
        jax.clear_caches()
    print(f"{broken} of {num} problems with a broken promise")


if __name__ == "__main__":
    main(int(sys.argv[1]))
