"""Prior paths + update paths = posterior paths (Matheron's rule).

    f(x)  =  mean  +  phi(x) @ w  +  k(x, X) @ (K + noise I)^-1 (y - mean - phi(X) @ w - epsilon)
             -------- prior path      ------------------------------------------------ update path

The paths are in paths.py; this is what one asks of them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._arrays import in_wide, is_traced, wide
from dualgp._checks import check_targets, refuse_traced
from dualgp._types import AnyArray, Columns, Points, RandomKey
from dualgp.operators.evaluation import TEST_BLOCK, CrossProduct, evaluate, evaluate_blocks
from dualgp.operators.tiles import precision
from dualgp.paths import PriorPaths, SamplePaths
from dualgp.sharding import Layout
from dualgp.solvers.base import Solution
from dualgp.solvers.residual import column_norms

if TYPE_CHECKING:
    from dualgp.gp import GaussianProcess

NO_SAMPLES = (
    "The standard deviation comes from samples, and this posterior has none. "
    "Condition with num_samples=64, say, or with solver=Cholesky()."
)
IN_JIT = " The exact one, from the Cholesky factor, is for calls outside jax.jit, jax.grad and jax.vmap."


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A Gaussian process conditioned on data. Made by `GaussianProcess.condition`.

    `weights` and `targets` have 1 + s columns: the mean's, then those of s zero-mean sample deviations
    phi(X) @ w + epsilon. A deviation is `prior(x) - k(x, X) @ weights`, and a sample is the mean plus a deviation.

    `layout`: how the rows of `x`, `targets` and `weights` are spread over devices, where they are; see `gathered`.
    """

    model: GaussianProcess
    x: Points
    targets: Columns
    weights: Columns
    prior: PriorPaths | None
    solution: Solution
    layout: Layout | None = None

    @property
    def n(self) -> int:
        """The number of data."""
        return self.x.shape[0] if self.layout is None else self.layout.n

    @property
    def num_samples(self) -> int:
        """How many sample functions there are."""
        return self.weights.shape[1] - 1

    @property
    def d(self) -> int:
        """The number of input dimensions."""
        return self.x.shape[1]

    @cached_property
    def samples(self) -> SamplePaths:
        """The posterior functions, to be called and differentiated."""
        if self.prior is None:
            raise ValueError("This posterior has no samples. Condition with num_samples=64, say, to have functions.")
        with wide(), jax.ensure_compile_time_eval():  # they are kept, also if they are first used inside `jax.jit`
            update = self._update(self.weights[:, :1] - self.weights[:, 1:])
        # A float64 array of JAX's is not safe where 64-bit types are off; one of NumPy's may be passed to `jax.jit`.
        paths = SamplePaths(self.model.mean, self.prior, update)
        return _as_numpy(paths, np.float64) if self.layout is None else paths

    def mean(self, x: Any) -> Float[AnyArray, " m"]:
        """The posterior mean at (m, d) points."""
        with wide():
            update = self._update(self.weights[:, :1])
        values = evaluate(update, x, self.x, self.model.kernel)[:, 0]
        return self.model.mean.astype(values.dtype) + values

    def std(self, x: Any, *, noise: bool = False) -> Float[AnyArray, " m"]:
        """The posterior standard deviation of the function, or with `noise=True` of a new observation.

        Exact where the solver was Cholesky, outside `jax.jit` and its kin. Otherwise the root mean square of the sample
        deviations: its own standard error is 1 / sqrt(2 s) of it, 9 % for 64 samples.
        """
        return self.predict(x, noise=noise)[1]

    def predict(self, x: Any, *, noise: bool = False) -> tuple[Float[AnyArray, " m"], Float[AnyArray, " m"]]:
        """Mean and standard deviation together, in one pass over the data."""
        if self.solution.factor is not None and not is_traced(x):
            mean, variance = self.mean(x), self._exact_variance(x)
        elif self.prior is None:
            raise ValueError(NO_SAMPLES + (IN_JIT if self.solution.factor is not None else ""))
        else:
            mean, variance = self._moments(x)
        std = (variance + (float(self.model.noise) if noise else 0.0)) ** 0.5
        return mean, std if is_traced(x) else std.astype(mean.dtype)

    def covariance(self, x: Any, *, noise: bool = False) -> Float[np.ndarray, "m m"]:
        """The joint posterior covariance at (m, d) points, of the function or of new observations: m^2 numbers.

        Exact where the solver was Cholesky. Otherwise the average of products of sample deviations, a matrix of rank s:
        each entry is fair, but do not invert it. The variance of a point given m others comes out about (s - m) / s of
        what it is.
        """
        refuse_traced("Posterior.covariance", x)
        if self.solution.factor is not None:
            covariance = self._exact_covariance(x)
        elif self.prior is None:
            raise ValueError(NO_SAMPLES)
        else:
            deviations = self.samples(x).astype(np.float64) - self.mean(x)
            covariance = deviations.T @ deviations / self.num_samples
        covariance[np.diag_indices_from(covariance)] += float(self.model.noise) if noise else 0.0
        return covariance

    def log_prob(self, x: Any, y: Any) -> Float[AnyArray, " m"]:
        """log N(y; mean(x), std(x)^2 + noise) for each point."""
        mean, std = self.predict(x, noise=True)
        y = check_targets(y, mean.shape[0])
        return -0.5 * ((y - mean) / std) ** 2 - (jnp if is_traced(std) else np).log(std) - 0.5 * math.log(2 * math.pi)

    @in_wide
    def leave_one_out(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Mean and standard deviation of each observation given all others: a check that needs no held-out data.

        With q = diag(A^-1): y - weights / q and 1 / sqrt(q). Exact where the solver was Cholesky. Otherwise q is the
        mean square of the samples' weights, whose covariance is A^-1, and as good as they are: 64 know it to 18 %.

        To compare models::

            before, after = (dg.metrics.nll(y, *model.condition(x, y, key=key).leave_one_out()) for model in models)
        """
        targets, weights = (self._on_host(array) for array in (self.targets, self.weights))
        if self.solution.factor is not None:
            from scipy.linalg import lapack

            root, _ = lapack.dtrtri(np.asarray(self.solution.factor), lower=1)
            inverse_q = 1.0 / np.einsum("ij,ij->j", np.tril(root), np.tril(root))
        elif self.num_samples > 2:
            # s / (s - 2) times too large on average: the inverse of a chi-square with s degrees of freedom
            inverse_q = (1.0 - 2.0 / self.num_samples) / np.mean(weights[:, 1:] ** 2, axis=1)
        else:
            raise ValueError("Leaving one out takes samples. Condition with num_samples=64, say.")
        return float(self.model.mean) + targets[:, 0] - weights[:, 0] * inverse_q, np.sqrt(inverse_q)

    def update(self, x: Any, y: Any, *, key: RandomKey | None = None, **settings: Any) -> Posterior:
        """The posterior given more data as well, solved from where this one ended.

        Settings: `solver`, `memory`, `max_seconds`, `max_passes`, `checkpoint`, `progress`, as for `condition`.
        """
        return self.model.extend(self, x, y, key=key, **settings)

    def refine(self, *, key: RandomKey, **settings: Any) -> Posterior:
        """The same posterior solved further from where it ended, e.g. `refine(solver=BlockDescent(tol=1e-3), key=key)`.

        Settings as for `update`; without a solver, the one that made this posterior has another go.
        """
        return self.model.refine(self, key=key, **settings)

    @in_wide
    def gathered(self) -> Posterior:
        """The same posterior in the memory of one host, as `save` writes it. On many hosts each of them must ask."""
        if self.layout is None:
            return self
        collect = lambda leaf: self.layout.collect(leaf) if self.layout.holds(leaf) else leaf  # noqa: E731
        arrays = {name: collect(getattr(self, name)) for name in ("x", "targets", "weights")}
        solver, weights = jax.tree.map(collect, (self.solution.solver, self.solution.weights))
        solution = dataclasses.replace(self.solution, solver=solver, weights=weights, state=None)
        placed = {name: jnp.asarray(array) for name, array in arrays.items()}
        return dataclasses.replace(self, solution=solution, layout=None, **placed)

    @in_wide
    def error_bound(self, x: Any = None) -> float | Float[np.ndarray, " m"]:
        """A bound on `|mean - exact posterior mean|` that holds at every x, or a sharper one at the given points.

        With residual r of the mean's weights: sqrt(max k) ||r|| / (2 sqrt(noise)) everywhere, and
        sqrt(k(x, x) - var(x)) ||r|| / sqrt(noise) at x (without the variance where it is not known exactly).
        Rigorous up to the check of r on fresh rows, and loose.
        """
        norm = float(column_norms(self.targets[:, :1])[0])
        root = float(self.solution.residual_upper[0]) * norm / math.sqrt(float(self.model.noise))
        everywhere = math.sqrt(float(jnp.max(self.model.kernel.diagonal(self.x)))) * root / 2
        if x is None:
            return everywhere
        points = jnp.asarray(self.model.kernel.points(x, "x", self.d), precision(self.x))
        explained = np.asarray(self.model.kernel.diagonal(points), np.float64)
        if self.solution.factor is not None:  # variances from samples are noisy: a bound may not use them
            explained = np.maximum(explained - np.asarray(self.std(x), np.float64) ** 2, 0.0)
        return np.minimum(np.sqrt(explained) * root, everywhere)

    def __getstate__(self) -> dict[str, Any]:
        """NumPy arrays, because a float64 jax.Array would be read back as float32 where 64-bit types are off."""
        gathered = self.gathered()
        fields = {field.name: getattr(gathered, field.name) for field in dataclasses.fields(self)}
        solver = _as_numpy(gathered.solution.solver)
        fields["solution"] = dataclasses.replace(gathered.solution, state=None, solver=solver)
        return _as_numpy(fields)

    def __setstate__(self, state: dict[str, Any]) -> None:
        with wide():
            arrays = {name: jnp.asarray(state[name]) for name in ("x", "targets", "weights")}
        self.__dict__.update(state | arrays)

    def __repr__(self) -> str:
        shape = f"n={self.n}, d={self.d}, num_samples={self.num_samples}"
        return f"Posterior({shape}, kernel={self.model.kernel!r}, {self.solution.result.value})"

    def report(self) -> str:
        """What was done, how good it is and what to do next, in plain words."""
        model = f"Kernel {self.model.kernel!r}, noise variance {float(self.model.noise):.4g}."
        return "\n".join([self.report_size(), model, *self.report_solution()])

    def report_size(self) -> str:
        """The sentence of the report about how much there is of everything."""
        spread = f"{self.num_samples} function samples" if self.num_samples else "no function samples"
        if self.solution.factor is not None:
            spread += ", exact standard deviations"
        elif self.num_samples:
            spread += f"; standard deviations known to about {100 / math.sqrt(2 * self.num_samples):.0f} %"
        where = f" on {self.layout.num_devices} devices" if self.layout is not None else ""
        size = f"{self.n:,} points in {self.d} dimension(s), {precision(self.x)} arithmetic{where}"
        return f"Gaussian process on all {size}; {spread}."

    def report_solution(self, unit: float = 1.0) -> list[str]:
        """The sentences of the report about the solution; `unit` is what 1 means in the data's own units."""
        solution = self.solution
        worst = float(solution.residual_upper.max())
        lines = [
            solution.message,
            f"The equations hold to {worst:.2g} of the data's size (95 % upper limit, worst column); "
            f"{solution.passes:.3g} passes over the kernel matrix in {solution.seconds:.3g} s.",
        ]
        bound, size = self.error_bound(), float(np.std(self._on_host(self.targets[:, :1])))
        if bound < size:
            close = f"{unit * bound:.2g}"
            lines.append(f"The mean is certainly within {close} of the exact one, everywhere (often much closer).")
        else:
            lines.append("No useful certificate for the mean at this residual; a smaller tol gives one.")
        return lines

    def _moments(self, x: Any) -> tuple[Float[AnyArray, " m"], Float[AnyArray, " m"]]:
        """The mean and the mean squared deviation, so many points at once that nothing large exists."""
        means, squares = [], []
        functions = (self.prior, self._update(self.weights))
        for prior, update in evaluate_blocks(functions, x, self.x, self.model.kernel):
            means.append(self.model.mean.astype(update.dtype) + update[:, 0])
            squares.append(((prior - update[:, 1:]) ** 2).mean(axis=1))
        return (means[0], squares[0]) if len(means) == 1 else (np.concatenate(means), np.concatenate(squares))

    def _update(self, weights: Columns) -> CrossProduct:
        return CrossProduct(self.model.kernel, self.x, weights, self.layout)

    def _on_host(self, columns: Columns) -> np.ndarray:
        return np.asarray(columns if self.layout is None else self.layout.collect(columns), np.float64)

    @in_wide
    def _exact_covariance(self, x: Any) -> Float[np.ndarray, "m m"]:
        """k(x, x') - k(x, X) A^-1 k(X, x'), in float64."""
        from scipy.linalg import solve_triangular

        points = jnp.asarray(np.asarray(self.model.kernel.points(x, "x", self.d), np.float64))
        cross = np.asarray(self.model.kernel(jnp.asarray(self.x, jnp.float64), points))
        half = solve_triangular(self.solution.factor, cross, lower=True, check_finite=False)
        return np.asarray(self.model.kernel(points, points)) - half.T @ half

    @in_wide
    def _exact_variance(self, x: Any) -> Float[np.ndarray, " m"]:
        """k(x, x) - ||L^-1 k(X, x)||^2, in float64."""
        from scipy.linalg import solve_triangular

        points = np.asarray(self.model.kernel.points(x, "x", self.d), np.float64)
        data = jnp.asarray(self.x, jnp.float64)
        variance = np.asarray(self.model.kernel.diagonal(points)).copy()
        for start in range(0, points.shape[0], TEST_BLOCK):
            block = slice(start, start + TEST_BLOCK)
            cross = np.asarray(self.model.kernel(data, points[block]))
            half = solve_triangular(self.solution.factor, cross, lower=True, check_finite=False)
            variance[block] -= np.einsum("ij,ij->j", half, half)
        return np.maximum(variance, 0.0)


def _as_numpy(tree: Any, dtype: Any = None) -> Any:
    """The tree with NumPy arrays instead of JAX's: all, or those of one dtype."""
    is_meant = lambda leaf: isinstance(leaf, jax.Array) and dtype in (None, leaf.dtype)  # noqa: E731
    return jax.tree.map(lambda leaf: np.asarray(leaf) if is_meant(leaf) else leaf, tree)
