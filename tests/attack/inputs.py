"""Odd arrays, settings and tables at every entry point: what each call becomes."""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dualgp as dg
from attack import estimators
from attack.arrays import JUNK, KERNEL, KEY, X, Y, odd_arrays, regressor
from dualgp import metrics

LIMIT = 60  # seconds, for a call
BAD = ("silent NaN", "wrong", "traceback", "hang")


class Hang(BaseException):
    """A call took too long."""


def entries() -> tuple[dict[str, Callable], dict[str, Callable]]:
    """Entry points that take x and y, and those that take points."""
    fitted = regressor().fit(X, Y)
    model = dg.GaussianProcess(KERNEL, 0.01)
    exact = model.condition(X, Y, num_samples=3, num_features=64, key=KEY)
    sampled = model.condition(X, Y, num_samples=3, num_features=64, key=KEY, solver=dg.BlockDescent())
    single = model.condition(X.astype(np.float32), Y, num_samples=3, num_features=64, key=KEY, solver=dg.BlockDescent())

    def told(x: Any, y: Any) -> Any:
        sampler = dg.ThompsonSampler([(-9, 9)] * 3, key=KEY)
        sampler.tell(x, y)
        return sampler.best

    both = {
        "fit": lambda x, y: regressor().fit(x, y).predict(X, return_std=True),
        "update": lambda x, y: regressor().fit(X, Y).update(x, y).predict(X, return_std=True),
        "score": lambda x, y: fitted.score(x, y),
        "condition": lambda x, y: model.condition(x, y, num_samples=0).mean(X),
        "block descent": lambda x, y: model.condition(x, y, num_samples=0, key=KEY, solver=dg.BlockDescent()).mean(X),
        "extend": lambda x, y: exact.update(x, y, key=KEY).predict(X),
        "log_prob": lambda x, y: exact.log_prob(x, y),
        "tell": told,
        "rmse": lambda x, y: metrics.rmse(y, Y),
        "nll": lambda x, y: metrics.nll(y, Y, 0.5),
        "solve": lambda x, y: dg.solve(dg.KernelOperator(KERNEL, x, 0.1), y).weights,
    }
    points = {
        "predict": lambda x: fitted.predict(x, return_std=True),
        "predict cov": lambda x: fitted.predict(x, return_cov=True),
        "sample_y": lambda x: fitted.sample_y(x),
        "functions": lambda x: fitted.sample_functions()(x),
        **{
            f"{name} {kind}": (lambda x, post=post, name=name: getattr(post, name)(x))
            for name in ("mean", "predict", "samples", "covariance", "error_bound")
            for kind, post in (("exact", exact), ("sampled", sampled), ("single", single))
        },
    }
    return both, points


SETTINGS = ("kernel", "noise", "solver", "n_samples", "tol", "max_seconds", "devices", "random_state")


def settings() -> Iterator[tuple[str, Callable]]:
    """Settings that make no sense, one at a time."""
    for name in SETTINGS:
        for value in JUNK:
            yield f"{name}={value!r}", lambda n=name, v=value: regressor(**{n: v}).fit(X, Y).predict(X, return_std=True)
    for kernel in (dg.RBF, dg.Matern12, dg.Matern32):
        for value in JUNK:
            both = (lambda k=kernel, v=value: k(v), lambda k=kernel, v=value: k(1.0, v))
            for i, make in enumerate(both):
                yield f"{kernel.__name__} {i} {value!r}", lambda m=make: regressor(kernel=m()).fit(X, Y).predict(X)
    for value in JUNK:
        yield f"ask {value!r}", lambda v=value: dg.ThompsonSampler([(0, 1)], key=KEY).ask(v)
        yield f"bounds {value!r}", lambda v=value: dg.ThompsonSampler(v, key=KEY).ask(2)
        yield f"prior {value!r}", lambda v=value: dg.GaussianProcess(KERNEL, 0.1).sample_prior(3, v, key=KEY)(X)


def calls() -> Iterator[tuple[str, Callable, Callable | None]]:
    """Every call with its name, and the call on a plain array where it must give the same."""
    both, points = entries()
    for entry, call in both.items():
        for (odd, (x, is_same)), (odd_y, (y, is_same_y)) in zip(
            odd_arrays(X).items(), list(odd_arrays(Y).items()) * 2, strict=False
        ):
            del odd_y, y, is_same_y
            yield f"{entry}: x {odd}", lambda c=call, x=x: c(x, Y), (lambda c=call: c(X, Y)) if is_same else None
        for odd, (y, is_same) in odd_arrays(Y).items():
            yield f"{entry}: y {odd}", lambda c=call, y=y: c(X, y), (lambda c=call: c(X, Y)) if is_same else None
    for entry, call in points.items():
        for odd, (x, is_same) in odd_arrays(X).items():
            yield f"{entry}: {odd}", lambda c=call, x=x: c(x), (lambda c=call: c(X)) if is_same else None
    for name, call in settings():
        yield name, call, None
    yield from estimators.calls()


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(call: Callable, plain: Callable | None) -> tuple[str, str]:
    """What a call becomes, and what it said."""
    try:
        with time_limit(LIMIT), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = call()
            expected = plain() if plain else None
    except Hang:
        return "hang", ""
    except Exception as error:
        said = f"{type(error).__name__}: {str(error)[:150]}"
        return ("sentence" if is_sentence(error) else "traceback"), said
    numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(answer) if np.ndim(leaf) or isinstance(leaf, float)]
    if not all(np.isfinite(part).all() for part in numbers if part.dtype.kind == "f"):
        return "silent NaN", ""
    if expected is None:
        return "finite", ""
    pairs = zip(jax.tree.leaves(answer), jax.tree.leaves(expected), strict=True)
    is_right = all(np.allclose(one, other, rtol=1e-4, atol=1e-4) for one, other in pairs)
    return ("correct" if is_right else "wrong"), ""


def is_sentence(error: BaseException) -> bool:
    """An error of a usual kind, raised by dualgp or by scikit-learn's validation, in words."""
    if not isinstance(error, (ValueError, TypeError, NotImplementedError, IndexError, OSError)) or " " not in str(
        error
    ):
        return False
    if "must be" in str(error) or type(error).__name__ == "TypeCheckError":  # the tests' own check of annotations
        return True
    raised = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    if "sklearn" in raised.parts:
        return True
    return "dualgp" in raised.parts and ("must" in str(error) or str(error).rstrip().endswith((".", ")")))


def attack(share: float = 1.0, seed: int = 0, show: bool = False) -> Counter:
    """How many calls end how; what is bad is printed."""
    rng, counts = np.random.default_rng(seed), Counter()
    for name, call, plain in calls():
        if rng.random() >= share:
            continue
        outcome, said = judge(call, plain)
        counts[outcome] += 1
        if outcome in BAD:
            print(f"  {outcome}: {name} {said}", file=sys.stderr)
        elif show and outcome == "sentence":
            print(f"  {name}: {said}", file=sys.stderr)
    return counts
