"""Splits of molecules into rows to learn from and rows to test on."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from dualgp.sklearn.fingerprints import require_rdkit


def random_split(
    n: int, *, test_share: float = 0.2, seed: int = 0
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " test"]]:
    """Rows to learn from and rows to test on."""
    test, train = np.split(np.random.default_rng(seed).permutation(n), [round(n * test_share)])
    return np.sort(train), np.sort(test)


def scaffold_split(
    smiles: Sequence[str], *, test_share: float = 0.2
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " test"]]:
    """The most frequent scaffolds (Bemis and Murcko's ring systems) to learn from, the rarest to test on.

    No scaffold is on both sides, as with a new series of molecules. This is harder than a random split.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, scaffold in enumerate(scaffolds(smiles)):
        groups[scaffold].append(i)
    train: list[int] = []
    limit = round(len(smiles) * (1 - test_share))
    for _, rows in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(train) + len(rows) <= limit:
            train += rows
    test = np.setdiff1d(np.arange(len(smiles)), train)
    return np.sort(np.array(train, dtype=int)), test


def scaffolds(smiles: Sequence[str]) -> list[str]:
    """The scaffold of each molecule, as SMILES; the empty string for chains and for what RDKit cannot read."""
    require_rdkit()
    from rdkit import Chem, rdBase
    from rdkit.Chem.Scaffolds import MurckoScaffold

    with rdBase.BlockLogs():
        molecules = map(Chem.MolFromSmiles, smiles)
        return ["" if mol is None else MurckoScaffold.MurckoScaffoldSmiles(mol=mol) for mol in molecules]
