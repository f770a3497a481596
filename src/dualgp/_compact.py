"""The fields that the file of a posterior leaves out, because the others determine them.

    prior functions and their targets      drawn again from their keys
    Cholesky factor, functions' weights    of up to 4,096 rows: factorised and solved again

Before a file is written, `compact` draws them again and leaves them out only if they are equal bit for bit. A few of
their values are kept, so that `complete` notices when another version draws other random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt32

from dualgp._arrays import in_wide, on_device
from dualgp._types import AnyArray, Points
from dualgp.operators import KernelOperator, policy
from dualgp.operators.cross import evaluate
from dualgp.operators.noise import Noise
from dualgp.operators.tiles import precision
from dualgp.posterior import ExactPosterior, Posterior, SampledPosterior
from dualgp.posterior.prior import PriorPaths, draw_targets, prior_paths
from dualgp.solvers.cholesky import factorise

MOST_FEATURES = 1 << 20
SAME = 1e-3  # times the largest value: machines differ by less, other random numbers by more


@dataclass(frozen=True)
class Drawn:
    """How prior functions were drawn, and their `values` at the first of the data.

    `are_targets_left_out`: whether the posterior has the targets of its means alone.
    """

    key: UInt32[AnyArray, " words"]
    num_samples: int
    num_features: int
    values: Float[AnyArray, " s"]
    are_targets_left_out: bool = False

    def again(self, model: Any, x: Points) -> PriorPaths:
        """Draw the same functions again; raise if their values differ from those kept."""
        if self.num_features > MOST_FEATURES or np.shape(self.values) != (self.num_samples,):
            raise ValueError("its functions have too many features, or values that are not theirs")
        policy.check_functions(self.num_samples, len(x), "num_samples", self.num_features)
        key = jax.random.wrap_key_data(jnp.asarray(self.key, jnp.uint32), impl="threefry2x32")
        prior = prior_paths(model.kernel, x.shape[1], self.num_samples, key, self.num_features)
        values = evaluate(prior, x[:1], x, model.kernel)[0]
        if not np.allclose(values, self.values, rtol=0.0, atol=SAME * np.max(np.abs(self.values), initial=0.0)):
            raise ValueError("its random functions come out as others here: load it with the versions that wrote it")
        return prior


@in_wide
def compact(posterior: Posterior) -> Posterior:
    """The posterior without the fields that `complete` makes again; `prior` becomes a `Drawn` if it can be redrawn."""
    solution, is_solved_again = posterior.solution, _is_solved_again(posterior)
    if np.array_equal(np.asarray(solution.weights), np.asarray(posterior.weights)):
        solution = replace(solution, weights=np.zeros((0, 0)))
    if is_solved_again:
        solution = replace(solution, factor=None)
    kept: dict[str, Any] = {"solution": solution, "prior": _slim(posterior)}
    if (drawn := _try_to_draw(posterior)) is not None:
        kept["prior"] = drawn
    if drawn is not None and drawn.are_targets_left_out:
        k = posterior.num_outputs
        kept["targets"] = posterior.targets[:, :k]
        if is_solved_again:
            kept["far"] = eqx.tree_at(lambda far: far.weights, posterior.far, posterior.weights[:, :k])
    return replace(posterior, **kept)


def complete(cls: type, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a posterior of this class, with those added that `compact` left out."""
    found: dict[str, Any] = {"all_rows": None, "noise": None, **fields}
    model, far, solution, drawn = found["model"], found["far"], found["solution"], found["prior"]
    x = (far if found["all_rows"] is None else found["all_rows"]).x
    noise = Noise(model.noise) if found["noise"] is None else found["noise"]
    if isinstance(drawn, Drawn):
        found["prior"] = prior = drawn.again(model, x)
        if drawn.are_targets_left_out:
            columns = _draw_targets(prior, model, noise, found["draw_key"], x, found["dtype"])
            found["targets"] = jnp.concatenate([found["targets"], columns.astype(found["targets"].dtype)], axis=1)
    if cls is ExactPosterior and solution.factor is None:
        found["far"], factor = _solve_again(far, noise, np.asarray(found["targets"], np.float64))
        solution = replace(solution, factor=factor)
    if not len(solution.weights):
        solution = replace(solution, weights=np.asarray(found["far"].weights))
    return found | {"solution": solution}


def _is_solved_again(posterior: Posterior) -> bool:
    return isinstance(posterior, ExactPosterior) and posterior.layout.n <= policy.SOLVE_EXACTLY_UP_TO


def _solve_again(far: Any, noise: Noise, targets: Float[np.ndarray, "n s"]) -> tuple[Any, np.ndarray]:
    """The far field with weights for all columns, and the Cholesky factor. Weights in the file are kept."""
    from scipy.linalg import cho_solve

    known = np.asarray(far.weights)
    if not 0 < len(far.x) <= policy.SOLVE_EXACTLY_UP_TO or len(targets) != len(far.x):
        raise ValueError("it has no factor")
    factor = factorise(KernelOperator(far.kernel, np.asarray(far.x), noise, memory=0, dtype=np.float64), np.inf)
    weights = cho_solve((factor, True), targets, check_finite=False)
    weights[:, : known.shape[1]] = known
    return eqx.tree_at(lambda far: far.weights, far, on_device(weights, np.float64)), factor


def _try_to_draw(posterior: Posterior) -> Drawn | None:
    """How prior functions and their targets can be drawn again; None if they cannot."""
    prior: Any = posterior.prior
    if prior is None or prior.key is None or np.shape(prior.key) != (2,) or prior.num_features > MOST_FEATURES:
        return None
    x, model, k = posterior.x, posterior.model, posterior.num_outputs
    values = evaluate(prior, x[:1], x, model.kernel)[0]
    drawn = Drawn(np.asarray(prior.key), prior.weights.shape[1], prior.num_features, values)
    try:
        again = drawn.again(model, x)
    except ValueError:
        return None
    if not eqx.tree_equal(again, prior):
        return None
    if posterior.draw_key is None or posterior.targets.shape[1] == k:
        return drawn
    targets = _draw_targets(prior, model, posterior.row_noise, posterior.draw_key, x, posterior.dtype)
    are_same = np.array_equal(targets.astype(posterior.targets.dtype), np.asarray(posterior.targets[:, k:]))
    return replace(drawn, are_targets_left_out=are_same)


def _draw_targets(
    prior: PriorPaths, model: Any, noise: Noise, key: AnyArray, x: Points, dtype: str
) -> Float[np.ndarray, "n s"]:
    """phi(X) @ w + epsilon in the precision that the solver had."""
    x = np.asarray(model.kernel.stored(np.asarray(x), dtype))
    return draw_targets(prior, model.kernel, noise, key, x, len(x), slice(None)).astype(precision(x))


def _slim(posterior: Posterior) -> Any:
    """Prior functions in the precision of the solve: float32 takes half the bytes, and predictions are the same."""
    if not isinstance(posterior, SampledPosterior) or posterior.dtype != "float32":
        return posterior.prior
    single = lambda leaf: np.asarray(leaf, np.float32) if np.ndim(leaf) == 2 and leaf.dtype == np.float64 else leaf  # noqa: E731
    return jax.tree.map(single, posterior.prior)
