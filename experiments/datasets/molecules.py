"""Molecules with docking scores: the DOCKSTRING benchmark where its files are there, and other scores for F2.

The benchmark (García-Ortegón et al. 2022) is two files, `dockstring-dataset.tsv` and `cluster_split.tsv`. The scores
for the protein F2 in `dockstring_F2.csv.xz` were made with the same program, but for 97,045 other molecules (candidates
of searches for good scores) and without a split: results on them are not results of the benchmark.
"""

import csv
import lzma
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from datasets.uci import find

TARGETS = ("ESR2", "F2", "KIT", "PARP1", "PGR")
LARGEST_SCORE = 5.0  # scores beyond are failures of docking
DOWNLOAD = (
    "Download dockstring-dataset.tsv and cluster_split.tsv (figshare, 'dockstring dataset') and put both there, or set "
    "DUALGP_DATA to the folder that has them."
)


class Molecules(NamedTuple):
    """SMILES and scores, lower is better."""

    smiles: list[str]
    y: Float[np.ndarray, " n"]


def dockstring(target: str) -> tuple[Molecules, Molecules]:
    """Training and test molecules of the benchmark: its cluster split, scores limited to 5, none without a score."""
    if target not in TARGETS:
        raise ValueError(f"The benchmark has no target {target!r}. Choose one of {', '.join(TARGETS)}.")
    try:
        scores, split = find("dockstring-dataset.tsv"), find("cluster_split.tsv")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} {DOWNLOAD}") from None
    with open(split, newline="") as file:
        part = {row["inchikey"]: row["split"] for row in csv.DictReader(file, delimiter="\t")}
    found: dict[str, tuple[list[str], list[float]]] = {"train": ([], []), "test": ([], [])}
    with open(scores, newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row[target] and (score := float(row[target])) == score:
                smiles, y = found[part[row["inchikey"]]]
                smiles.append(row["smiles"])
                y.append(min(score, LARGEST_SCORE))
    train, test = (Molecules(smiles, np.array(y, np.float32)) for smiles, y in found.values())
    return train, test


def docking_f2() -> Molecules:
    """97,045 molecules and their scores for F2, limited to 5: not the benchmark's."""
    with lzma.open(find("dockstring_F2.csv.xz"), "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    y = np.array([float(row["score"]) for row in rows], np.float32)
    return Molecules([row["smiles"] for row in rows], np.minimum(y, LARGEST_SCORE))


def docking_f2_counts() -> UInt8[np.ndarray, "n 1024"]:
    """Their Morgan counts, radius 1, 1,024 columns, ready made."""
    with np.load(find("dockstring_F2_fp.npz")) as arrays:
        rows = np.repeat(np.arange(len(arrays["nnz"])), arrays["nnz"])
        x = np.zeros((len(arrays["nnz"]), 1024), np.uint8)
        x[rows, arrays["indices"]] = arrays["counts"]
    return x
