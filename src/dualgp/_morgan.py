"""Fingerprints of a chunk of molecules. A separate module, so that worker processes start without JAX."""

import numpy as np

LARGEST = 255  # counts are bytes


def fingerprint_chunk(strings: list[str], radius: int, size: int, counts: bool) -> tuple[np.ndarray, np.ndarray]:
    """(n, size) bytes, and which of the strings RDKit could read; the other rows are zeros."""
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=size)
    fingerprint = generator.GetCountFingerprintAsNumPy if counts else generator.GetFingerprintAsNumPy
    x, valid = np.zeros((len(strings), size), np.uint8), np.zeros(len(strings), bool)
    with rdBase.BlockLogs():  # the caller reports unreadable rows, once
        for i, text in enumerate(strings):
            molecule = Chem.MolFromSmiles(text) if text.strip() else None
            if molecule is not None:
                x[i], valid[i] = np.minimum(fingerprint(molecule), LARGEST), True
    return x, valid
