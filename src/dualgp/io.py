"""`save` and `load`: a posterior, a model or an estimator in one file of arrays and a JSON header, without pickle.

The header is a tree of classes, fields and names of arrays:

    {"format": "dualgp", "version": 1, "content": {"class": "Posterior", "fields": {"x": {"array": "a0"}, ...}}}

Loading builds only classes of this package and those passed as `classes`, so a file cannot make it execute code.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dualgp import __version__, kernels, solvers
from dualgp._arrays import in_wide
from dualgp._compact import Drawn, compact, complete
from dualgp._npz import NotReadable, read, write
from dualgp._sound import FITTED, check_fields, check_sound, is_whole
from dualgp.decisions.thompson import ThompsonState
from dualgp.gp import GaussianProcess
from dualgp.kernels import base, features, hashes
from dualgp.kernels.translate import translated
from dualgp.operators.cross import CrossProduct
from dualgp.operators.layout import Local, writes
from dualgp.operators.merging import GivenRows
from dualgp.operators.noise import Noise
from dualgp.posterior import AllRows, ExactPosterior, Posterior, SampledPosterior
from dualgp.posterior.calibration import Calibration
from dualgp.posterior.prior import PriorPaths
from dualgp.sklearn.estimator import GPRegressor
from dualgp.sklearn.outputs import UnitsOfMany
from dualgp.sklearn.units import Units
from dualgp.sklearn.warps import Warp
from dualgp.solvers import Result, Solution, preconditioners
from dualgp.solvers.base import Trace
from dualgp.solvers.validation import Score

FORMAT, VERSION = "dualgp", 4
# Classes of the table application and their modules. They are imported only for a file that has one.
TABLE = {
    **{name: "dualgp.columns.types" for name in ("Category", "Code", "Levels", "Logarithm", "Number", "Rank", "Time")},
    "Encoding": "dualgp.columns.encoding",
    "SmilesEncoding": "dualgp.table.smiles",
    "TableModel": "dualgp.table.model",
}


def save(value: Any, path: str | os.PathLike) -> None:
    """Write a `Posterior`, `GaussianProcess`, kernel or `GPRegressor` to one file.

    The file of a posterior has its data, which predictions need. `load` draws random functions again from their keys,
    and computes the Cholesky factor of up to 4,096 rows. On the same machine all predictions are the same to the last
    bit. The state of an unfinished solve, such as momentum, is not in the file: use `checkpoint=` for that.
    If many processes share a posterior, all must call this; the first one writes.
    """
    arrays: dict[str, np.ndarray] = {}
    if isinstance(value, (int, float, str, list, tuple, dict, np.ndarray, jax.Array)):
        raise TypeError(f"save writes posteriors, models, kernels and GPRegressors, got {type(value).__name__}.")
    content = _encode(value, arrays)
    if not is_whole(value):
        raise TypeError(f"A {type(value).__name__} alone cannot be saved; posteriors, models and kernels can.")
    if writes():
        write(
            path,
            {"format": FORMAT, "version": VERSION, "dualgp": __version__, "content": content},
            arrays,
            compress=True,
        )


@in_wide
def load(path: str | os.PathLike, *, classes: Sequence[type] = ()) -> Any:
    """Read what `save` wrote. `classes`: classes of your own, such as kernels, that the file may contain."""
    header, arrays = read(path)
    version = header.get("version")
    if header.get("format") != FORMAT or not isinstance(version, int):
        raise NotReadable(f"{path} is not a file written by dualgp.save.")
    if version > VERSION:
        raise NotReadable(
            f"{path} was written by a newer dualgp ({header.get('dualgp')}, file version {version}); this is "
            f"{__version__}, which reads versions up to {VERSION}. Upgrade dualgp to read it."
        )
    try:
        value = _decode(header["content"], arrays, {cls.__name__: cls for cls in classes})
        if not is_whole(value):
            raise ValueError(f"it holds a {type(value).__name__}, which is no model")
        check_sound(value)
    except _Unknown as error:
        raise NotReadable(
            f"{path} contains a {error}, which is not part of dualgp. If it is a class of yours, pass it: "
            f"load(path, classes=[{error}])."
        ) from None
    except Exception as error:  # a changed file may make constructors raise any error
        why = " ".join(str(error).split()) or type(error).__name__
        raise NotReadable(f"{path} does not hold together ({why}). It was changed or damaged.") from None
    return value


class _Unknown(Exception):
    """The file names a class that is neither of this package nor passed."""


def _package_class(name: str) -> type | None:
    """The class of the package that a file may contain under this name."""
    return getattr(import_module(TABLE[name]), name) if name in TABLE else _classes().get(name)


@cache
def _classes() -> dict[str, type]:
    """All classes but those of the table application."""
    found = [ExactPosterior, SampledPosterior, AllRows, CrossProduct, Drawn, PriorPaths, GaussianProcess, Solution]
    found += [Trace, Result, Score, GPRegressor, ThompsonState, Units, UnitsOfMany, Warp, Noise, GivenRows]
    found += [Calibration]
    for module in (kernels, base, features, hashes, solvers, preconditioners):
        found += [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, eqx.Module)]
    return {cls.__name__: cls for cls in found}


def _encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"names": [str(item) for item in value]}  # scikit-learn's feature_names_in_
    if isinstance(value, (np.ndarray, jax.Array)):
        name = f"a{len(arrays)}"
        arrays[name] = np.asarray(value)
        if arrays[name].dtype.kind not in "fiubU":
            raise TypeError(f"An array of {arrays[name].dtype} cannot be saved; numbers and text can.")
        return {"array": name}
    if isinstance(value, Result):
        return {"class": "Result", "value": value.value}
    if isinstance(value, Posterior):
        value = compact(value.gathered())
    if isinstance(value, Solution):
        value = dataclasses.replace(value, state=None, residuals=None, factor=_packed(value.factor))
    fields = _fields(value)
    if fields is not None:
        name, encoded = type(value).__name__, {name: _encode(field, arrays) for name, field in fields.items()}
        if type(value) is _package_class(name):
            return {"class": name, "fields": encoded}
        if not isinstance(value, eqx.Module):
            raise TypeError(f"A {name} cannot be saved.")
        return {"class": name, "is_own": True, "fields": encoded}  # its name may be that of one of ours
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_encode(item, arrays) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(item, arrays) for key, item in value.items()}}
    raise TypeError(f"A {type(value).__name__} cannot be saved: {value!r}.")


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object of this package; None for other values."""
    if isinstance(value, GPRegressor):
        kept = {name: field for name, field in vars(value).items() if not name.startswith("_")}
        seed, kernel = kept["random_state"], kept["kernel"]
        changes = {
            "random_state": int(seed) if isinstance(seed, (int, np.integer)) else None,
            "kernel": None if kernel is None else translated(kernel, learning=False)[0],
            "checkpoint": None,
            "devices": None,
        }
        if "posterior_" in kept:
            posterior = kept["posterior_"]
            changes["posterior_"] = dataclasses.replace(posterior, scored=posterior.calibration)
        return kept | changes
    if isinstance(value, Trace | Score):
        return value._asdict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # equinox modules are dataclasses too
        return {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.init and field.name != "layout"
        }
    return None


def _decode(content: Any, arrays: dict[str, np.ndarray], own: dict[str, type]) -> Any:
    if not isinstance(content, dict):
        return content
    if "array" in content:
        return arrays[content["array"]]
    if "names" in content:
        return np.array(content["names"], dtype=object)
    for kind in (list, tuple):
        if kind.__name__ in content:
            return kind(_decode(item, arrays, own) for item in content[kind.__name__])
    if "dict" in content:
        return {key: _decode(item, arrays, own) for key, item in content["dict"].items()}
    if content["class"] == "Posterior":
        content = _as_version_2(content["fields"])
    name = content["class"]
    cls = own.get(name) if name in own or content.get("is_own") else _package_class(name)
    if cls is None:
        raise _Unknown(name)
    if cls is Result:
        return Result(content["value"])
    fields = {name: _decode(field, arrays, own) for name, field in content["fields"].items()}
    check_fields(cls, fields)
    if cls is GPRegressor:
        return _as_regressor(fields)
    if cls is Solution:
        fields["factor"] = _unpacked(fields["factor"])
    if cls is CrossProduct:  # so that predictions do not copy it
        x, weights = (jnp.asarray(fields[name]) for name in ("x", "weights"))
        return CrossProduct(fields["kernel"], x, weights, Local(len(x)))
    if cls is AllRows:
        return AllRows(jnp.asarray(fields["x"]), fields["places"], Local(len(fields["x"])))
    if issubclass(cls, Posterior):
        fields.pop("left_out", None)  # rows without weights, in files of version 2
        for name in ("targets", "residuals"):
            fields[name] = None if fields.get(name) is None else jnp.asarray(fields[name])
        return cls(**complete(cls, fields))
    return cls(**fields)


def _as_version_2(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a posterior in a file of version 1, whose inputs and weights were fields of their own."""
    kept = {name: fields[name] for name in ("model", "targets", "prior", "solution")}
    far = {"kernel": fields["model"]["fields"]["kernel"], "x": fields["x"], "weights": fields["weights"]}
    is_exact = fields["solution"]["fields"]["factor"] is not None
    fields = kept | {"far": {"class": "CrossProduct", "fields": far}, "dtype": "float64"}
    return {"class": "ExactPosterior" if is_exact else "SampledPosterior", "fields": fields}


def _as_regressor(fields: dict[str, Any]) -> GPRegressor:
    parameters = {name: fields.pop(name) for name in GPRegressor().get_params(deep=False) if name in fields}
    if "X_offset_" in fields:  # written before targets could be transformed
        units = Units(*(fields.pop(name) for name in ("X_offset_", "y_offset_", "y_scale_")))
        fields |= {"units_": units, "encoding_": None, "decisions_": ()}
    regressor = GPRegressor(**parameters)
    if unknown := set(fields) - FITTED:
        raise ValueError(f"it sets {', '.join(sorted(unknown))}")
    regressor.__dict__.update(fields)
    return regressor


def _packed(factor: np.ndarray | None) -> np.ndarray | None:
    """The lower triangle, row by row: half the size."""
    return None if factor is None else factor[np.tri(len(factor), dtype=bool)]


def _unpacked(packed: np.ndarray | None) -> np.ndarray | None:
    if packed is None:
        return None
    n = int(np.sqrt(2 * len(packed)))
    if packed.shape != (n * (n + 1) // 2,):
        raise ValueError(f"a factor of {packed.shape} entries is not triangular")
    factor = np.zeros((n, n))
    factor[np.tri(n, dtype=bool)] = packed
    return factor
