"""Odd frames, weights, targets and settings where an estimator learns, encodes, weighs, or has several outputs."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dualgp as dg
from attack.arrays import JUNK, KERNEL, KEY, X, Y, odd_arrays, regressor
from dualgp import metrics

BOTH = np.stack([Y, np.cos(X).sum(axis=1)], axis=1)
POSITIVE = np.abs(Y) + 0.1
BOX = np.array([[-2.0, 2.0]] * 3)
HUGE = (10**8, 10**29)  # of these somebody may want so many, if there is time and memory
MAY_BE_HUGE = (
    "num_features",
    "num_rounds",
    "num_candidates",
    "num_starts",
    "num_steps",
    "max_iterations",
    "batch_size",
)
SETTINGS = ("target_transform", "trend", "robust", "learn", "checkpoint", "verbose")


def frame() -> Any:
    """Numbers, text of few and of many values, dates, ordered categories, and a number that is sometimes missing."""
    import pandas

    days = pandas.date_range("2020-01-01", periods=24)
    size = pandas.Categorical(["small", "large", "huge"] * 8, ["small", "large", "huge"], ordered=True)
    columns = {"a": X[:, 0], "few": ["up", "down"] * 12, "many": list("abcdef") * 4, "day": days, "size": size}
    return pandas.DataFrame(columns | {"hole": np.where(X[:, 1] > 1, np.nan, X[:, 1])})


def odd_columns() -> dict[str, Any]:
    """Columns of 24 rows that are not what they were."""
    import pandas

    zone = pandas.date_range("2020-01-01", periods=24, tz="Europe/Vienna")
    days = [datetime.date(2020, 1, 1)] * 23
    found: dict[str, Any] = {
        "none": [None] * 24,
        "NaN": [np.nan] * 24,
        "inf": [np.inf, *X[1:, 0]],
        "1e300": [1e300, *X[1:, 0]],
        "1e140": [1e140, *X[1:, 0]],
        "5e-324": X[:, 0] * 5e-324,
        "large whole numbers": [2**70, *range(23)],
        "mixed": [1, "a", None, 2.5] * 6,
        "text of numbers": [str(i) for i in range(24)],
        "empty text": [""] * 24,
        "text with zeros": ["a\0b", "a"] * 12,
        "long text": ["x" * 100_000, "y"] * 12,
        "bytes": [b"a", b"b"] * 12,
        "truth": [True, False] * 12,
        "complex": [1j] * 24,
        "lists": [[1.0, 2.0]] * 24,
        "dicts": [{"a": 1}] * 24,
        "decimals": [decimal.Decimal("1.5"), decimal.Decimal("2.5")] * 12,
        "nullable": pandas.array([1, None] * 12, dtype="Int64"),
        "nullable truth": pandas.array([True, None] * 12, dtype="boolean"),
        "durations": pandas.to_timedelta(np.arange(24), unit="D"),
        "zone": zone,
        "periods": pandas.period_range("2020-01", periods=24, freq="M"),
        "far dates": [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)] * 12,
        "times of day": [datetime.time(1, 2, 3), datetime.time(23, 59)] * 12,
        "NaT": [pandas.NaT] * 24,
        "dates and text": [*days, "soon"],
        "intervals": pandas.interval_range(0, 24),
        "unused categories": pandas.Categorical(["a", "b"] * 12, ["a", "b", "never"]),
        "no categories": pandas.Categorical([None] * 24, []),
        "categories of numbers": pandas.Categorical([1.5, np.nan] * 12),
        "sparse": pandas.arrays.SparseArray([0.0, 1.0] * 12),
        "objects": [object()] * 24,
    }
    return found


def odd_frames() -> Iterator[tuple[str, Any]]:
    """Frames that are odd in one way."""
    import pandas

    good = frame()
    for odd, column in odd_columns().items():
        for name in ("a", "few", "many", "day", "size"):
            changed = good.copy()
            changed[name] = column
            yield f"{name} {odd}", changed
    for name in good.columns:
        yield f"without {name}", good.drop(columns=name)
        yield f"{name} twice", pandas.concat([good, good[[name]]], axis=1)
        yield f"{name} alone", good[[name]]
    yield "no rows", good.iloc[:0]
    yield "one row", good.iloc[:1]
    yield "other order", good[good.columns[::-1]]
    yield "more columns", good.assign(z=1.0)
    yield "names of numbers", good.set_axis(range(6), axis=1)
    yield "names of two levels", good.set_axis(pandas.MultiIndex.from_product([["x"], list("abcdef")]), axis=1)
    yield "rows of equal names", good.set_axis([0] * 24, axis=0)
    yield "a series", good["few"]
    yield "a dict", dict(good)
    yield "text of names", "abc"
    yield "an array", good.to_numpy()


def other_frames() -> Iterator[tuple[str, Any]]:
    """The same in other libraries."""
    good = frame().drop(columns="size")
    try:
        import polars

        plain = polars.from_pandas(good)
        yield "polars", plain
        yield "polars lazy", plain.lazy()
        yield "polars null", plain.with_columns(polars.lit(None).alias("few"))
        yield "polars list", plain.with_columns(polars.lit([1.0]).alias("a"))
        yield "polars struct", plain.with_columns(polars.struct("a", "few").alias("a"))
        yield "polars category", plain.with_columns(polars.col("few").cast(polars.Categorical))
        yield "polars decimal", plain.with_columns(polars.col("a").cast(polars.Decimal(20, 4)))
        yield "polars inf", plain.with_columns(polars.lit(float("inf")).alias("a"))
    except ImportError:
        pass
    import pyarrow

    table = pyarrow.Table.from_pandas(good, preserve_index=False)
    yield "arrow", table
    yield "arrow batch", table.to_batches()[0]
    yield "arrow chunks", pyarrow.concat_tables([table[:7], table[7:]])
    yield "arrow half", table.set_column(0, "a", pyarrow.array(X[:, 0].astype(np.float16)))
    yield "arrow lists", table.set_column(0, "a", pyarrow.array([[1.0]] * 24))
    yield "arrow null", table.set_column(1, "few", pyarrow.nulls(24))
    yield "arrow binary", table.set_column(1, "few", pyarrow.array([b"\xff"] * 24))


def calls_with_frames() -> Iterator[tuple[str, Callable, None]]:
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError:
        return
    fitted = regressor(kernel=None).fit(frame(), Y)
    alone = regressor(kernel=None).fit(frame().drop(columns="size"), Y)
    for model, frames in ((fitted, odd_frames()), (alone, other_frames())):
        for name, odd in frames:
            yield f"frame predict: {name}", lambda x=odd, m=model: m.predict(x, return_std=True), None
            yield f"frame fit: {name}", lambda x=odd: _fit_and_predict(x, regressor(kernel=None)), None
            yield f"frame update: {name}", lambda x=odd: _update(x), None
    for name, (y, _) in odd_arrays(Y).items():
        yield f"frame y: {name}", lambda y=y: _fit_and_predict(frame(), regressor(kernel=None), y), None


def _fit_and_predict(x: Any, model: dg.GPRegressor, y: Any = Y) -> Any:
    return model.fit(x, y).predict(x, return_std=True)


def _update(x: Any) -> Any:
    return regressor(kernel=None).fit(frame(), Y).update(x, Y).predict(frame(), return_std=True)


def entries() -> dict[str, tuple[np.ndarray, Callable]]:
    """Entry points of one odd array, and what it is a variant of."""
    model = dg.GaussianProcess(KERNEL, 0.01)
    exact = model.condition(X, Y, num_samples=3, num_features=64, key=KEY)
    sampled = model.condition(X, Y, num_samples=3, num_features=64, key=KEY, solver=dg.BlockDescent())
    plain = regressor().fit(X, Y)
    several = regressor().fit(X, BOTH)
    varying = regressor(noise="input-dependent").fit(X, Y)
    warped = regressor(target_transform="yeo-johnson").fit(X, Y)
    robust = regressor(robust=True).fit(X, Y)
    quick = dg.Search(num_rounds=1, num_candidates=16, num_starts=1, num_steps=2)

    def told(noise: Any) -> Any:
        sampler = dg.ThompsonSampler([(-9, 9)] * 3, key=KEY)
        sampler.tell(X, Y, noise=noise)
        return sampler.state.y, sampler.state.noise if sampler.state.noise is not None else 0.0

    found: dict[str, tuple[np.ndarray, Callable]] = {
        f"{name} {what}": (X, call)
        for name, fitted in {"several": several, "varying": varying, "warped": warped, "robust": robust}.items()
        for what, call in {
            "predict": lambda x, m=fitted: m.predict(x, return_std=True),
            "cov": lambda x, m=fitted: m.predict(x, return_cov=True),
            "quantiles": lambda x, m=fitted: m.predict(x, quantiles=[0.1, 0.9]),
            "sample_y": lambda x, m=fitted: m.sample_y(x, 2),
        }.items()
    }
    return found | {
        "learned x": (X, lambda x: dg.GPRegressor(n_samples=2, random_state=0).fit(x, Y).predict(X, return_std=True)),
        "learned y": (Y, lambda y: dg.GPRegressor(n_samples=2, random_state=0).fit(X, y).predict(X, return_std=True)),
        "learn": (Y, lambda y: dg.learn(model, X, y, max_seconds=5).model.condition(X, Y, num_samples=0).mean(X)),
        "robust y": (Y, lambda y: regressor(robust=True).fit(X, y).predict(X, return_std=True)),
        "varying y": (
            Y,
            lambda y: regressor(noise="input-dependent").fit(X, y).predict(X, return_std=True),
        ),
        "warped y": (
            Y,
            lambda y: regressor(target_transform="yeo-johnson").fit(X, y).predict(X, return_std=True),
        ),
        "log y": (POSITIVE, lambda y: regressor(target_transform="log").fit(X, y).predict(X, return_std=True)),
        "trend x": (X, lambda x: regressor(trend=True).fit(x, Y).predict(X, return_std=True)),
        "several y": (BOTH, lambda y: regressor().fit(X, y).predict(X, return_std=True)),
        "several update": (BOTH, lambda y: regressor().fit(X, BOTH).update(X, y).predict(X, return_std=True)),
        "several score": (BOTH, lambda y: several.score(X, y)),
        "weights fit": (POSITIVE, lambda w: regressor().fit(X, Y, sample_weight=w).predict(X, return_std=True)),
        "weights update": (
            POSITIVE,
            lambda w: regressor().fit(X, Y).update(X, Y, sample_weight=w).predict(X, return_std=True),
        ),
        "weights score": (POSITIVE, lambda w: plain.score(X, Y, sample_weight=w)),
        "noise condition": (POSITIVE, lambda v: model.condition(X, Y, noise=v, num_samples=0).predict(X)),
        "noise update": (POSITIVE, lambda v: exact.update(X, Y, noise=v, key=KEY).predict(X)),
        "noise predict": (POSITIVE, lambda v: exact.predict(X, noise=v)),
        "noise sampled": (POSITIVE, lambda v: sampled.predict(X, noise=v)),
        "noise log_prob": (POSITIVE, lambda v: exact.log_prob(X, Y, noise=v)),
        "noise covariance": (POSITIVE, lambda v: exact.covariance(X, noise=v)),
        "noise tell": (POSITIVE, told),
        "noise learn": (POSITIVE, lambda v: dg.learn(model, X, Y, noise=v, max_seconds=5).noise),
        "means": (BOTH[0], lambda m: dg.GaussianProcess(KERNEL, 0.1, m).condition(X, BOTH, num_samples=0).mean(X)),
        "quantiles": (POSITIVE / 5, lambda q: plain.predict(X, quantiles=q)),
        "term": (X, lambda x: exact.term(0).predict(x)),
        "maximise bounds": (BOX, lambda b: dg.maximise(exact.samples, b, key=KEY, search=quick)),
        "maximise near": (
            X,
            lambda x: dg.maximise(exact.samples, BOX, key=KEY, search=quick, near=(x, Y)),
        ),
        "crps": (POSITIVE, lambda s: metrics.crps(Y, Y + 1.0, s)),
        "nll std": (POSITIVE, lambda s: metrics.nll(Y, Y + 1.0, s)),
        "coverage": (POSITIVE, lambda s: metrics.coverage(Y, Y + 1.0, s)),
    }


def settings() -> Iterator[tuple[str, Callable, None]]:
    for name in SETTINGS:
        for value in JUNK:
            yield (
                f"{name}={value!r}",
                lambda n=name, v=value: dg.GPRegressor(n_samples=2, random_state=0, **{n: v}).fit(X, Y).predict(X),
                None,
            )
    exact = dg.GaussianProcess(KERNEL, 0.01).condition(X, Y, num_samples=3, num_features=64, key=KEY)
    fitted = regressor().fit(X, Y)
    for value in JUNK:
        yield f"quantiles={value!r}", lambda v=value: fitted.predict(X, quantiles=v), None
        yield f"sample_y {value!r}", lambda v=value: fitted.sample_y(X, v), None
        yield f"term {value!r}", lambda v=value: exact.term(v).predict(X), None
        yield f"output {value!r}", lambda v=value: exact.output(v).predict(X), None
        yield f"level={value!r}", lambda v=value: metrics.coverage(Y, Y, 1.0, v), None
        yield f"search {value!r}", lambda v=value: dg.maximise(exact.samples, BOX, key=KEY, search=v), None
        for name in (
            "num_features",
            "neighbours",
            "num_far",
            "dtype",
            "memory",
            "max_passes",
            "start",
            "mesh",
            "merge",
        ):
            solver = dg.BlockDescent(block_size=10)
            yield (
                f"condition {name}={value!r}",
                lambda n=name, v=value, s=solver: (
                    dg.GaussianProcess(KERNEL, 0.01)
                    .condition(X, Y, solver=s, num_samples=2, key=KEY, **{n: v})
                    .predict(X)
                ),
                None,
            )
        for name in ("method", "priors", "fixed", "num_samples", "max_seconds", "noise_role"):
            yield (
                f"learn {name}={value!r}",
                lambda n=name, v=value: dg.learn(dg.GaussianProcess(KERNEL, 0.01), X, Y, **{n: v}).model.noise,
                None,
            )
        for cls, names in {
            dg.SDD: ("step_size", "momentum", "batch_size", "num_steps", "averaging"),
            dg.CG: ("tol", "max_iterations", "preconditioner"),
            dg.BlockDescent: ("block_size", "tol"),
            dg.Search: ("num_rounds", "num_candidates", "num_starts", "num_steps"),
        }.items():
            for name in names:
                yield f"{cls.__name__} {name}={value!r}", lambda c=cls, n=name, v=value: _use(c(**{n: v})), None


def _use(part: Any) -> Any:
    gp = dg.GaussianProcess(KERNEL, 0.01)
    if isinstance(part, dg.Search):
        return dg.maximise(
            gp.condition(X, Y, num_samples=2, num_features=64, key=KEY).samples, BOX, key=KEY, search=part
        )
    return gp.condition(X, Y, solver=part, num_samples=0, key=KEY, max_seconds=5).mean(X)


def all_settings() -> Iterator[tuple[str, Callable, None]]:
    """Those that are answered or refused at once."""
    for name, call, plain in settings():
        setting, _, value = name.split()[-1].partition("=")
        if not (setting in MAY_BE_HUGE and value in map(str, HUGE)):
            yield name, call, plain


def calls() -> Iterator[tuple[str, Callable, Callable | None]]:
    """Every call with its name, and the call on a plain array where it must give the same."""
    for entry, (good, call) in entries().items():
        for odd, (value, is_same) in odd_arrays(good).items():
            yield f"{entry}: {odd}", lambda c=call, v=value: c(v), (lambda c=call, g=good: c(g)) if is_same else None
    yield from calls_with_frames()
    yield from all_settings()
