"""From SMILES to Morgan fingerprints, by RDKit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, UInt8
from sklearn.base import BaseEstimator, TransformerMixin

from dualgp._checks import check_count
from dualgp._morgan import fingerprint_chunk

Invalid = Literal["raise", "drop", "nan"]
CHUNK = 1000  # molecules for one task of a worker


def fingerprints(
    smiles: Iterable[str],
    *,
    radius: int = 1,
    size: int = 1024,
    counts: bool = True,
    invalid: Invalid = "raise",
    n_jobs: int | None = None,
    progress: bool = False,
) -> tuple[UInt8[np.ndarray, "n size"] | Float[np.ndarray, "n size"], Bool[np.ndarray, " all"]]:
    """Morgan fingerprints of molecules, and which of the SMILES could be read.

    **Arguments:**

    - `radius`: bonds from each atom that are looked at. `size`: columns, into which all fragments are folded.
    - `counts`: how often each fragment occurs (at most 255), or whether it does.
    - `invalid`: what to do with SMILES that RDKit cannot read: "raise" an error that names their rows, "drop" the rows,
      or "nan": the fingerprints are then floats, with rows of NaN.
    - `n_jobs`: processes, by default all cores. `progress`: show a bar.
    """
    if isinstance(smiles, str):
        raise TypeError(f"Pass a list of SMILES, got the one string {smiles[:40]!r}.")
    if hasattr(smiles, "columns"):
        raise TypeError("Pass a column of SMILES, such as frame['smiles'], not a whole data frame.")
    strings = [text if isinstance(text, str) else "" for text in smiles]  # None and NaN cannot be read
    check_count(radius, "radius")
    check_count(size, "size", 1)
    if invalid not in ("raise", "drop", "nan"):
        raise ValueError(f"invalid must be 'raise', 'drop' or 'nan', got {invalid!r}.")
    parts = _in_chunks(strings, radius, size, counts, n_jobs, progress)
    x = np.concatenate([part[0] for part in parts]) if parts else np.zeros((0, size), np.uint8)
    valid = np.concatenate([part[1] for part in parts]) if parts else np.zeros(0, bool)
    if valid.all():
        return x, valid
    if invalid == "raise":
        raise ValueError(unreadable(strings, valid) + " Correct them, or pass invalid='drop' or 'nan'.")
    if invalid == "drop":
        return x[valid], valid
    x = x.astype(np.float32)
    x[~valid] = np.nan
    return x, valid


def unreadable(strings: Sequence[str], valid: Bool[np.ndarray, " all"], first: int = 0) -> str:
    """A sentence that names the unreadable rows, counted from `first`, and their text."""
    rows = np.flatnonzero(~valid)
    shown = ", ".join(f"{first + row} ({strings[row][:40]!r})" for row in rows[:5])
    return f"{len(rows)} SMILES cannot be read: row {shown}{', ...' if len(rows) > 5 else ''}."


def _in_chunks(
    strings: list[str], radius: int, size: int, counts: bool, n_jobs: int | None, progress: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    require_rdkit()
    chunks = [strings[i : i + CHUNK] for i in range(0, len(strings), CHUNK)]
    if len(chunks) > 1 and n_jobs != 1:
        from joblib import Parallel, delayed

        work = Parallel(n_jobs=n_jobs or -1, return_as="generator")(
            delayed(fingerprint_chunk)(chunk, radius, size, counts) for chunk in chunks
        )
    else:
        work = (fingerprint_chunk(chunk, radius, size, counts) for chunk in chunks)
    if progress:
        from tqdm.auto import tqdm

        work = tqdm(work, total=len(chunks), desc="Fingerprints", unit="k", leave=False)
    return list(work)


def require_rdkit() -> None:
    """Raise if RDKit is missing."""
    try:
        import rdkit  # noqa: F401
    except ImportError:
        raise ImportError("Molecules need RDKit: pip install 'dualgp[molecules]'.") from None


class MorganFingerprint(TransformerMixin, BaseEstimator):
    """SMILES to Morgan fingerprints, in scikit-learn's manner.

    `make_pipeline(MorganFingerprint(), GPRegressor(Tanimoto()))` learns from a column of strings.

    Parameters
    ----------
    radius : int
        Bonds from each atom that are looked at.
    size : int
        Columns, into which all fragments are folded.
    counts : bool
        How often each fragment occurs (at most 255), or whether it does.
    invalid : "raise" or "nan"
        For SMILES that RDKit cannot read: an error that names the rows, or rows of NaN, which `GPRegressor` refuses.
        (A transformer cannot drop rows; `dualgp.fingerprints` can.)
    n_jobs : int or None
        Processes; None is all cores.
    verbose : int
        1 shows a progress bar.
    """

    def __init__(self, radius=1, size=1024, counts=True, invalid="raise", n_jobs=None, verbose=0) -> None:
        self.radius = radius
        self.size = size
        self.counts = counts
        self.invalid = invalid
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> MorganFingerprint:
        """There is nothing to learn; the settings are checked."""
        if self.invalid not in ("raise", "nan"):
            raise ValueError(
                f"invalid must be 'raise' or 'nan' in a transformer, got {self.invalid!r}. To drop rows, call "
                "dualgp.fingerprints(smiles, invalid='drop') before."
            )
        column_of_strings(X)
        self.n_features_in_ = 1
        return self

    def transform(self, X: Any) -> np.ndarray:
        """(n, size) bytes, or floats where rows are NaN."""
        settings = {"radius": self.radius, "size": self.size, "counts": self.counts, "invalid": self.invalid}
        return fingerprints(column_of_strings(X), **settings, n_jobs=self.n_jobs, progress=bool(self.verbose))[0]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """`morgan0`, `morgan1`, ..."""
        return np.array([f"morgan{i}" for i in range(self.size)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = TransformerMixin.__sklearn_tags__(self)
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, True, True
        tags.requires_fit = False
        return tags


def column_of_strings(X: Any) -> list[str]:
    """One string for each row: of a list, an array, a series, or a frame or array with one column."""
    array = np.asarray(X, dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"Pass one column of SMILES, got an array of shape {array.shape}.")
    wrong = [i for i, value in enumerate(array) if not isinstance(value, str)]
    if wrong:
        raise TypeError(
            f"SMILES are strings; row {wrong[0]} is {array[wrong[0]]!r} ({len(wrong)} such row(s)). Drop or fill them."
        )
    return array.tolist()
