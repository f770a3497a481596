"""Decisions: which experiments to do next. Thompson sampling with as many functions as there are experiments.

    ask    draw one posterior function for each wanted point, and propose the point where that function is highest
    tell   results, as they come: some of them, in any order, failed ones (NaN), and points that nobody asked for

A batch follows from the state after the last `tell` and from what was asked since, and from nothing else. The state is
written after every `tell`, so that a process that was killed asks again and gets the same points.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dualgp._checks import as_float_array, check_count, check_finite, check_key, check_number, check_points, check_size
from dualgp._files import check_file, hold
from dualgp._random import subkey, subkeys
from dualgp._types import RandomKey
from dualgp.decisions.maxima import Search, as_search, check_bounds, climb_all
from dualgp.decisions.points import distinct, spread_evenly, without
from dualgp.gp import GaussianProcess
from dualgp.kernels import Matern52
from dualgp.learning import Exact, Neighbours, learn
from dualgp.operators import policy
from dualgp.operators.noise import check_noises
from dualgp.posterior import Posterior
from dualgp.solvers import Solver, as_solver

START_LENGTHSCALE = 0.5  # times the box and sqrt(d): the lengthscale from which learning starts without a model
START_NOISE = 1e-2  # times the variance of y: the noise from which learning starts


class Best(NamedTuple):
    """The best experiment so far."""

    x: Float[np.ndarray, " d"]
    y: float


@dataclass(frozen=True, eq=False)
class ThompsonState:
    """What the next `ask` needs. `x`, `y` are results; `pending` was asked for; `failed` had no result.

    `noise`: known variances of results, to which the model's noise is added; None where there are none.

    `model` is of y, or of -y where the smallest y is wanted. `posterior` is kept only with `redraw=False`.
    """

    bounds: Float[np.ndarray, "d 2"]
    maximise: bool
    key: np.ndarray
    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    pending: Float[np.ndarray, "p d"]
    failed: Float[np.ndarray, "f d"]
    model: GaussianProcess | None = None
    learned_at: int = 0
    num_asked: int = 0
    posterior: Posterior | None = field(default=None, repr=False)
    noise: Float[np.ndarray, " n"] | None = None

    def variances(self, model: GaussianProcess) -> Float[np.ndarray, " n"] | None:
        """The noise of every result; None where it is the model's."""
        return None if self.noise is None else self.noise + float(model.noise)


class ThompsonSampler:
    """Batches of experiments by Thompson sampling, for functions of a few to a few dozen inputs in a box.

    **Arguments:**

    - `bounds`: a pair (lower, upper) for each input.
    - `maximise`: False searches for the smallest y.
    - `model`: a `GaussianProcess` for y in the units of the data; by default Matern-5/2 with a lengthscale for each
      input, learned.
    - `key`: the randomness of everything.
    - `relearn`: hyperparameters are learned whenever the number of results has grown by this factor; None for never
      (then `model` is needed).
    - `redraw`: draw new functions for every batch. False keeps the functions of the last batch and conditions them on
      the new results: the solve starts from the last one, but batches are less independent.
    - `num_initial`: points spread evenly before there is a model; by default twice as many as inputs.
    - `search`: how thorough the search for maxima is, see `Search`. `solver`: as for `GaussianProcess.condition`.
    - `path`: a file for the state, written after every `tell`. If it exists, the sampler resumes from it. One
      process at a time may use a path.
    - `progress`: True prints the name of each stage; a function is called with it.
    """

    def __init__(
        self,
        bounds: Any,
        *,
        key: RandomKey,
        maximise: bool = True,
        model: GaussianProcess | None = None,
        relearn: float | None = 1.5,
        redraw: bool = True,
        num_initial: int | None = None,
        search: Search | None = None,
        solver: Solver | str = "auto",
        path: str | os.PathLike | None = None,
        progress: bool | Callable[[str], Any] = False,
    ) -> None:
        box = check_bounds(bounds)
        d = len(box)
        if model is not None and not isinstance(model, GaussianProcess):
            raise TypeError(f"model must be a GaussianProcess(kernel, noise), got {type(model).__name__}.")
        if relearn is not None:
            check_number(relearn, "relearn")
        if relearn is not None and not relearn > 1:
            raise ValueError(f"relearn must be larger than 1, or None for never, got {relearn!r}.")
        if relearn is None and model is None:
            raise ValueError("Without a model there must be learning: pass model=, or leave relearn at its default.")
        self.relearn, self.redraw, self.search, self.solver = relearn, redraw, as_search(search), as_solver(solver)
        self.num_initial = 2 * d if num_initial is None else check_count(num_initial, "num_initial", 1)
        self.path, self.progress = None if path is None else check_file(path), progress
        none = np.empty((0, d))
        key_data = np.asarray(jax.random.key_data(check_key(key, "Thompson sampling")))
        model = model if model is None or maximise else replace(model, mean=-model.mean)
        self.state = ThompsonState(box, bool(maximise), key_data, none, np.empty(0), none, none, model)
        if self.path is not None:
            hold(self.path, self)
        if self.path is not None and self.path.exists():
            self.state = _resumed(self.path, self.state, is_fixed=relearn is None)

    def __repr__(self) -> str:
        state = self.state
        goal, counts = "maximise" if state.maximise else "minimise", (len(state.y), len(state.pending))
        told, pending = (f"{count:,}" for count in counts)
        return f"ThompsonSampler({len(state.bounds)} inputs, {goal}: {told} results, {pending} points pending)"

    def ask(self, num: int) -> Float[np.ndarray, "num d"]:
        """`num` points to try next, none of them pending or failed. They become pending."""
        check_count(num, "num", 1)
        policy.check_functions(num, len(self.state.y), "num")
        state, key = self.state, self._key
        with _shown(self.progress) as report:
            if len(state.y) < max(self.num_initial, 2):
                x = spread_evenly(state.bounds, num, key)
                x = distinct(x[:, None], state, key)
            else:
                state, model = self._with_model(state, key, report)
                x, state = self._propose(state, model, num, key, report)
        self.state = replace(state, pending=np.concatenate([state.pending, x]), num_asked=state.num_asked + 1)
        return x

    def tell(self, x: Any, y: Any, *, noise: Any = None) -> None:
        """Results y (m,) at points x (m, d), or one of each; NaN for an experiment that failed.

        `noise`: known variances of these results, to which the model's noise is added.
        """
        state, d = self.state, len(self.state.bounds)
        points = np.asarray(as_float_array(x, "x"), np.float64)
        points = np.asarray(check_points(points[None] if points.ndim == 1 and d == len(points) else points, "x", d))
        values = np.atleast_1d(np.asarray(as_float_array(y, "y"), np.float64))
        if values.ndim > 1 and values.shape != (len(values), 1):
            raise ValueError(f"y must have shape (m,), one value for each point, got {values.shape}.")
        values = values.ravel()
        if len(values) != len(points):
            raise ValueError(f"y has {len(values)} value(s) for {len(points)} point(s). Pass one for each, or NaN.")
        failed = np.isnan(values)
        known = np.zeros(len(state.y)) if state.noise is None else state.noise
        variances = np.zeros(len(values)) if noise is None else check_noises(noise, len(values), may_be_zero=True)
        told = np.concatenate([known, variances[~failed]])
        check_finite(values[~failed], "y without the failed ones")
        check_size(values[~failed], "y")
        self.state = replace(
            state,
            x=np.concatenate([state.x, points[~failed]]),
            y=np.concatenate([state.y, values[~failed]]),
            pending=without(state.pending, points, state.bounds),
            failed=np.concatenate([without(state.failed, points, state.bounds), points[failed]]),
            noise=told if told.any() else None,
        )
        if self.path is not None:
            from dualgp.io import save  # imported here, because io imports this class

            save(self.state, self.path)

    @property
    def best(self) -> Best:
        """The best result so far, noise included; see `recommend`."""
        if not len(self.state.y):
            raise ValueError("There are no results yet. Pass some to tell(x, y).")
        index = np.argmax(self._sign * self.state.y)
        return Best(self.state.x[index], float(self.state.y[index]))

    @property
    def num_pending(self) -> int:
        """How many points were proposed and not yet told."""
        return len(self.state.pending)

    @property
    def model(self) -> GaussianProcess | None:
        """The model of y with the hyperparameters learned last."""
        model = self.state.model
        return model if model is None or self.state.maximise else replace(model, mean=-model.mean)

    def recommend(self) -> Best:
        """The tried point whose *expected* y is best, and that expectation: what to trust where y is noisy."""
        if len(self.state.y) < 2:
            return self.best
        state, model = self._with_model(self.state, self._key, lambda words: None)
        x, y = state.x, self._sign * state.y
        noise, key = state.variances(model), self._key
        mean = model.condition(x, y, noise=noise, solver=self.solver, num_samples=0, key=key).mean(x)
        index = np.argmax(mean)
        return Best(x[index], float(self._sign * mean[index]))

    @property
    def _sign(self) -> float:
        return 1.0 if self.state.maximise else -1.0

    @property
    def _key(self) -> RandomKey:
        """The randomness of the next batch."""
        return subkey(jax.random.wrap_key_data(jnp.asarray(self.state.key)), self.state.num_asked)

    def _with_model(
        self, state: ThompsonState, key: RandomKey, report: Callable[[str], Any]
    ) -> tuple[ThompsonState, GaussianProcess]:
        """The state with hyperparameters that are recent enough, and the model that has them."""
        is_recent = self.relearn is None or len(state.y) < self.relearn * state.learned_at
        if state.model is not None and is_recent:
            return state, state.model
        report(f"learning from {len(state.y):,} results")
        y = self._sign * state.y
        model = state.model or _first_model(state.bounds, y)
        method = Exact() if len(y) <= policy.LEARN_EXACTLY_UP_TO else Neighbours()
        model = learn(model, state.x, y, noise=state.noise, key=subkey(key, 1), method=method).model
        return replace(state, model=model, learned_at=len(y), posterior=None), model

    def _propose(
        self, state: ThompsonState, model: GaussianProcess, num: int, key: RandomKey, report: Callable[[str], Any]
    ) -> tuple[Float[np.ndarray, "num d"], ThompsonState]:
        solve_key, search_key, move_key = subkeys(subkey(key, 2), 3)
        report(f"solving for {num:,} functions given {len(state.y):,} results")
        y, old, noise = self._sign * state.y, state.posterior, state.variances(model)
        if old is not None and old.num_samples >= num:
            new = slice(old.n, None)
            its = None if noise is None else noise[new]
            posterior = model.extend(old, state.x[new], y[new], noise=its, key=solve_key, solver=self.solver)
        else:
            posterior = model.condition(state.x, y, noise=noise, num_samples=num, key=solve_key, solver=self.solver)
        paths = posterior.samples[:num]
        x, _ = climb_all(paths, state.bounds, key=search_key, search=self.search, near=(state.x, y), progress=report)
        state = replace(state, posterior=None if self.redraw else posterior)
        return distinct(x, state, move_key), state


def _first_model(bounds: np.ndarray, y: np.ndarray) -> GaussianProcess:
    width, variance = bounds[:, 1] - bounds[:, 0], float(np.var(y)) or 1.0
    kernel = Matern52(START_LENGTHSCALE * np.sqrt(len(width)) * width, variance)
    return GaussianProcess(kernel, np.asarray(START_NOISE * variance), np.mean(y))


def _resumed(path: Path, fresh: ThompsonState, is_fixed: bool) -> ThompsonState:
    """The state in the file, which must belong to the same problem, and if `is_fixed` to the same model."""
    from dualgp.io import load

    is_module = lambda node: isinstance(node, eqx.Module)  # noqa: E731
    own: list[type] = []
    nodes: list[Any] = [fresh.model]
    while nodes:  # kernels of the user, whose classes `load` needs
        node = nodes.pop()
        if is_module(node):
            own.append(type(node))
            nodes += jax.tree.leaves(list(vars(node).values()), is_leaf=is_module)
    found = load(path, classes=own)
    if not isinstance(found, ThompsonState):
        raise ValueError(f"{path} holds a {type(found).__name__}, not a ThompsonSampler's state. Choose another path.")
    for name in ("bounds", "maximise", "key"):
        if not np.array_equal(getattr(found, name), getattr(fresh, name)):
            raise ValueError(
                f"{path} was written with another {name}. Pass the same one to go on, or another path to begin anew."
            )
    structures: list[Any] = [jax.tree.structure(state.model) for state in (found, fresh)]
    is_alike = structures[0] == structures[1]
    if is_fixed:
        is_alike = bool(eqx.tree_equal(found.model, fresh.model, typematch=True))
    if fresh.model is not None and found.model is not None and not is_alike:
        raise ValueError(
            f"{path} was written with another model, {found.model}. Pass that one to go on, or another path."
        )
    return found


@contextmanager
def _shown(progress: bool | Callable[[str], Any]) -> Iterator[Callable[[str], Any]]:
    if progress is not True:
        yield progress or (lambda words: None)
        return
    from tqdm.auto import tqdm

    with tqdm(bar_format="{desc} ({elapsed})") as bar:
        yield bar.set_description_str
