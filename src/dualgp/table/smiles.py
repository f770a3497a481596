"""Tables with a column of SMILES: the fingerprint of that column is the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dualgp.columns.encoding import names_of
from dualgp.columns.tables import targets_of, text_of
from dualgp.columns.types import Column
from dualgp.sklearn.fingerprints import fingerprints, unreadable

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class SmilesEncoding:
    """How a table of molecules becomes fingerprints and targets.

    `invalid`: rows whose SMILES cannot be read are an error ("raise"), or left out of a fit, and nothing (NaN) is
    predicted for them ("drop").
    """

    smiles: str
    target: str | tuple[str, ...]
    radius: int = 1
    size: int = 1024
    counts: bool = True
    invalid: Literal["raise", "drop"] = "raise"
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of numbers: none."""
        return ()

    @property
    def text(self) -> tuple[str, ...]:
        """The columns to read as text."""
        return (self.smiles,)

    @property
    def inputs(self) -> tuple[str, ...]:
        """A description of the inputs."""
        kind = "counts" if self.counts else "bits"
        return (f"Morgan {kind} of {self.smiles!r}, radius {self.radius}, {self.size:,} columns",)

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """One group, the fingerprint."""
        return {self.inputs[0]: self.inputs}

    def x(self, table: pyarrow.Table) -> np.ndarray:
        """Fingerprints; rows of NaN for SMILES that cannot be read, where they are allowed."""
        strings = text_of(table, self.smiles)
        x, valid = fingerprints(strings, radius=self.radius, size=self.size, counts=self.counts, invalid="nan")
        if self.invalid == "raise":
            self.require(strings, valid)
        return x

    def require(self, strings: list[str], valid: np.ndarray) -> None:
        """An error that names the rows that cannot be read."""
        if not valid.all():
            raise ValueError(
                unreadable(strings, valid, first=1) + " Correct them, or fit with --invalid drop (invalid='drop')."
            )

    def y(self, table: pyarrow.Table) -> np.ndarray:
        """The targets of a table; NaN where they are missing."""
        return targets_of(table, self.target)

    def readable(self, table: pyarrow.Table) -> np.ndarray:
        """Which rows to keep: those whose SMILES can be read, or all where others are an error."""
        if self.invalid == "raise":
            return np.ones(table.num_rows, bool)
        return parsed(text_of(table, self.smiles))

    def unseen(self, table: pyarrow.Table) -> list[str]:
        """A sentence about SMILES that cannot be read."""
        valid, strings = self.readable(table), text_of(table, self.smiles)
        return [] if valid.all() else [unreadable(strings, valid, first=1) + " Nothing is predicted there."]


def parsed(strings: list[str]) -> np.ndarray:
    """Which of the strings are molecules."""
    return fingerprints(strings, size=1, invalid="nan")[1]


def make_smiles_encoding(
    table: pyarrow.Table,
    smiles: str,
    target: str | tuple[str, ...],
    *,
    radius: int = 1,
    size: int = 1024,
    counts: bool = True,
    invalid: Literal["raise", "drop"] = "raise",
) -> SmilesEncoding:
    """The encoding, with a note about columns that are not used.

    SMILES that cannot be read are refused here, by their rows in the whole table, unless `invalid` is "drop".
    """
    strings = text_of(table, smiles)
    targets_of(table, target)
    others = [name for name in table.column_names if name not in (smiles, *names_of(target))]
    note = f"Column(s) {', '.join(map(repr, others))} were left out: only the molecules are used." if others else ""
    encoding = SmilesEncoding(smiles, target, radius, size, counts, invalid, notes=(note,) if note else ())
    if encoding.invalid == "raise":
        encoding.require(strings, parsed(strings))
    return encoding
