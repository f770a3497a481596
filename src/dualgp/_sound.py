"""Checks that the fields of a loaded object fit together."""

from __future__ import annotations

import math
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import numpy as np

from dualgp._checks import as_float_array, check_finite, check_positive
from dualgp.columns.encoding import Encoding
from dualgp.columns.types import CIRCLES, Code, Column, Levels, Measured, Number, Rank, Time
from dualgp.decisions.maxima import check_bounds
from dualgp.decisions.thompson import ThompsonState
from dualgp.gp import GaussianProcess
from dualgp.kernels import Kernel
from dualgp.posterior import ExactPosterior, Posterior
from dualgp.posterior.calibration import Calibration
from dualgp.sklearn.estimator import GPRegressor
from dualgp.sklearn.outputs import UnitsOfMany
from dualgp.sklearn.units import Units
from dualgp.sklearn.warps import Warp

NUMBERS = {"noise_", "mean_"}
SAID = {"n_features_in_", "message_", "decisions_", "finished_", "interrupted_"}
OF_A_FIT = {"posterior_", "kernel_", "units_", "encoding_"} | NUMBERS | SAID
FITTED = OF_A_FIT | {"lengthscale_", "feature_names_in_", "validation_", "noise_field_"}


def is_whole(value: Any) -> bool:
    """Whether a value may be the content of a file. `TableModel` is known by name, because it is imported later."""
    whole = (Posterior, GaussianProcess, Kernel, GPRegressor, ThompsonState)
    return isinstance(value, whole) or type(value).__name__ == "TableModel"


def check_fields(cls: type, fields: dict[str, Any]) -> None:
    """Refuse fields whose types differ from the annotations of the class, where these are simple."""
    for name, hint in _hints(cls).items():
        if name in fields and not _fits(fields[name], hint):
            raise TypeError(f"{cls.__name__}.{name} is a {type(fields[name]).__name__}")


def check_sound(value: Any) -> None:
    """Refuse fields that contradict each other and numbers out of their range."""
    if isinstance(value, Posterior):
        _check_posterior(value)
    elif isinstance(value, GPRegressor):
        _check_regressor(value)
    elif isinstance(value, ThompsonState):
        _check_state(value)
    elif type(value).__name__ == "TableModel":
        _check_regressor(value.regressor)
        _check_table(value.encoding, value.regressor)


def _check_posterior(posterior: Posterior) -> None:
    n, columns, samples = posterior.layout.n, np.shape(posterior.weights)[1], posterior.num_samples
    _check_rows(posterior, n, columns)
    _check_noise(posterior, n)
    if not eqx.tree_equal(posterior.model.kernel, posterior.far.kernel):
        raise ValueError("it has two kernels")
    for name in ("x", "weights", "targets", "residuals"):
        if getattr(posterior, name) is not None:
            check_finite(np.asarray(getattr(posterior, name)), name)
    if isinstance(posterior, ExactPosterior):
        factor = np.asarray(posterior.solution.factor)
        if factor.shape != (n, n):
            raise ValueError("the factor has another size")
        check_finite(factor, "factor")
    if posterior.num_outputs < 1 or np.shape(posterior.model.mean) not in ((), (posterior.num_outputs,)):
        raise ValueError("there are samples without prior functions, or the other way round")
    if posterior.scored is not None:
        _check_calibration(posterior.scored)
    for leaf in jax.tree.leaves(posterior.prior):
        check_finite(np.asarray(leaf), "the prior functions")
    for term in () if posterior.prior is None else posterior.prior.features.terms:
        check_positive(term.variance, "a prior variance")
        if np.min(np.asarray(term.weights), initial=0.0) < 0:
            raise ValueError("a random feature has a negative weight")
    # Shapes fit together if a prediction can be traced.
    point = np.zeros((1, posterior.d), posterior.x.dtype)
    for part, width in ((posterior.far, columns), (posterior.prior, samples)):
        if part is not None and eqx.filter_eval_shape(_call, part, point).shape != (1, width):
            raise ValueError(f"predictions of {type(part).__name__} would not have {width} column(s)")


def _check_calibration(found: Any) -> None:
    """Refuse quantiles that do not increase with their probabilities, or lie on one side of the median."""
    if not isinstance(found, Calibration):
        raise ValueError("its calibration is something else")
    normal, values = (as_float_array(getattr(found, name), name) for name in ("normal", "values"))
    check_finite(np.concatenate([normal, values]), "its calibration")
    if normal.shape != values.shape or np.any(np.diff(normal) <= 0) or np.any(np.diff(values) < 0):
        raise ValueError("quantiles do not rise with their probabilities")
    if not normal[0] < 0 < normal[-1]:
        raise ValueError("quantiles are of one side alone")


def _check_rows(posterior: Posterior, n: int, columns: int) -> None:
    """Refuse row numbers beyond the data, and a near field that lacks rows."""
    far, rows, targets = len(posterior.far.x), posterior.all_rows, np.shape(posterior.targets)
    # Without a far field, functions are drawn on first use.
    means = (n, posterior.num_outputs)
    drawn = targets == (n, columns) or (targets == means and far == 0 and posterior.draw_key is not None)
    if not drawn or len(posterior.x) != n or n < 1 or posterior.d < 1 or np.shape(posterior.weights) != (far, columns):
        raise ValueError("rows, weights and targets differ in number")
    if posterior.residuals is not None and np.shape(posterior.residuals) != (n, columns):
        raise ValueError("rows and residuals differ in number")
    if not 0 <= posterior.neighbours <= n or (posterior.neighbours and far and posterior.residuals is None):
        raise ValueError("its near field has no residuals, or more rows than there are")
    if rows is None:
        return
    places = np.asarray(rows.places)
    if places.shape != (far,) or places.dtype.kind not in "iu" or len(np.unique(places)) != far or rows.x.ndim != 2:
        raise ValueError("the rows that have weights are not rows of the data")
    if far and (places.min() < 0 or places.max() >= n or not np.array_equal(rows.x[places], posterior.far.x)):
        raise ValueError("the rows that have weights are not rows of the data")
    key = posterior.draw_key
    if key is not None and (np.shape(key) != (2,) or np.asarray(key).dtype != np.uint32):
        raise ValueError("its key is none")


def _check_noise(posterior: Posterior, n: int) -> None:
    """Refuse noise that does not have one variance for every row, before and after merging."""
    given = posterior.given
    known = [(posterior.row_noise, n)] if given is None else [(posterior.row_noise, n), (given.noise, posterior.n)]
    for noise, count in known:
        if np.shape(noise.variance) not in ((), (count,)):
            raise ValueError("rows and noise differ in number")
        check_positive(noise.variance, "noise")
    if given is None:
        return
    place = np.asarray(given.place)
    if place.ndim != 1 or place.dtype.kind not in "iu" or not np.array_equal(np.unique(place), np.arange(n)):
        raise ValueError("the rows as they were given are not those that there are")


@eqx.filter_jit  # arrays are arguments, so that a second file with the same shapes is not traced again
def _call(part: Any, x: Any) -> Any:
    return part(x)


def _check_regressor(regressor: GPRegressor) -> None:
    there = {name for name in vars(regressor) if name.endswith("_")}
    if not there:
        return
    if OF_A_FIT - there:
        raise ValueError(f"a fitted model has no {', '.join(sorted(OF_A_FIT - there))}")
    for name in NUMBERS:
        check_finite(as_float_array(getattr(regressor, name), name), name)
    check_positive(regressor.noise_, "noise_")
    units, k = regressor.units_, regressor.posterior_.num_outputs
    shape = (k,) if isinstance(units, UnitsOfMany) else ()
    if any(np.shape(getattr(regressor, name)) != shape for name in NUMBERS) or not isinstance(
        regressor.kernel_, Kernel
    ):
        raise ValueError("its numbers or its kernel are something else")
    if not _fits(regressor.message_, str) or not _fits(regressor.decisions_, tuple[str, ...]):
        raise ValueError("what it says of itself is no text")
    d, encoding = regressor.posterior_.d, regressor.encoding_
    each = units.each if isinstance(units, UnitsOfMany) else (units,)
    if len(each) != k:
        raise ValueError(f"it has units of {len(each)} output(s), and {k} output(s)")
    for one in each:
        _check_units(one, d)
    if encoding is not None:
        _check_encoding(encoding, d)
    num = d if encoding is None else len(encoding.names)  # columns of the frame or of the array
    names = getattr(regressor, "feature_names_in_", [""] * num)
    if np.shape(names) != (num,) or regressor.n_features_in_ != num:
        raise ValueError(f"n_features_in_ and the names of columns are not those of {num}")
    if "lengthscale_" in there and np.shape(regressor.lengthscale_) != (d,):
        raise ValueError(f"lengthscale_ is not that of {d} inputs")
    _check_posterior(regressor.posterior_)
    if (field := getattr(regressor, "noise_field_", None)) is not None:
        if not isinstance(field, Posterior) or field.d != d or field.num_outputs != 1:
            raise ValueError("its noise depends on other inputs")
        _check_posterior(field)


def _check_units(units: Any, d: int) -> None:
    if not isinstance(units, Units) or not isinstance(units.warp, Warp):
        raise ValueError("its units are something else")
    for name in ("x_offset", "slopes"):
        vector = getattr(units, name)
        if name == "x_offset" or vector is not None:
            check_finite(as_float_array(vector, name), name)
            if np.shape(vector) != (d,):
                raise ValueError(f"{name} is not that of {d} inputs")
    warp = units.warp
    numbers = [units.y_offset, warp.shift, warp.power] + ([] if warp.kind == "none" else [warp.low, warp.high])
    check_finite(np.array(numbers, np.float64), "a unit")
    for scale in (units.y_scale, warp.scale):
        check_positive(scale, "a unit")
    if warp.kind not in Warp.KINDS or not warp.low <= warp.high:
        raise ValueError("the function of the targets is none of those that are known")


def _check_table(encoding: Any, regressor: GPRegressor) -> None:
    """Refuse a table model whose encoding differs from that of its regressor."""
    if regressor.encoding_ is not None and encoding.inputs != regressor.encoding_.inputs:
        raise ValueError("it has two encodings")
    if encoding.columns:
        return _check_encoding(encoding, regressor.posterior_.d)
    if encoding.size != regressor.posterior_.d:
        raise ValueError("its columns are not those of its inputs")


def _check_encoding(encoding: Any, d: int) -> None:
    if not isinstance(encoding, Encoding) or not all(isinstance(column, Column) for column in encoding.columns):
        raise ValueError("its columns are something else")
    for column in encoding.columns:
        _check_column(column)
    if len(encoding.inputs) != d:
        raise ValueError("its columns are not those of its inputs")


def _check_column(column: Column) -> None:
    if isinstance(column, Measured) and not math.isfinite(column.fill or 0.0):
        raise ValueError("missing numbers would be replaced by something that is none")
    scale = column.scale if isinstance(column, Number) else None
    if scale is not None and not (math.isfinite(scale.shift) and 0 < scale.least < math.inf):
        raise ValueError("a column's logarithms are none")
    if isinstance(column, Time) and not set(column.circles) <= set(CIRCLES):
        raise ValueError("a time goes round circles that are not known")
    if isinstance(column, Rank) and not 0 <= column.median <= len(column.categories) - 1:
        raise ValueError("missing ranks would be replaced by something that is none")
    if isinstance(column, Levels):
        for name in ("effects", "doubts"):
            if np.shape(getattr(column, name)) != (len(column.categories) + 1,):
                raise ValueError(f"a column has other {name} than values")
            check_finite(np.asarray(getattr(column, name)), name)
        doubts: Any = column.doubts
        if not (np.min(doubts) >= 0 and 0 <= column.usual < math.inf and 0 <= column.apart < math.inf):
            raise ValueError("a column's doubts are none")
    if isinstance(column, Code) and column.number is not None:
        _check_column(column.number)


def _check_state(state: ThompsonState) -> None:
    d = len(check_bounds(state.bounds))
    for name in ("x", "pending", "failed", "y"):
        array = getattr(state, name)
        if array.shape[1:] != (() if name == "y" else (d,)) or array.dtype != np.float64:
            raise ValueError(f"{name} has shape {array.shape}")
        check_finite(array, name)
    if state.noise is not None and (state.noise.shape != state.y.shape or not np.all(state.noise >= 0)):
        raise ValueError("its noise is not that of its results")
    if len(state.x) != len(state.y) or state.key.dtype != np.uint32 or state.key.ndim != 1:
        raise ValueError("points and results differ in number, or its key is none")
    if min(state.learned_at, state.num_asked) < 0:
        raise ValueError("its counts are negative")
    if state.posterior is not None:
        _check_posterior(state.posterior)


@cache
def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError:  # the annotation is imported for type checkers only
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value may have this type. Shapes are checked elsewhere."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(value == one for one in inner)
    if origin is tuple and inner[-1:] == (...,):
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (str, bool, types.NoneType, np.ndarray, jax.Array) else True
