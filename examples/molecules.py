"""Which molecules to make next: a library ranked by the probability of beating a threshold, and the best ones drawn.

python examples/molecules.py [molecules.csv smiles score]   (lower scores are better)
"""

import sys
from itertools import product
from statistics import NormalDist

import numpy as np
from rdkit import Chem
from rdkit.Chem import Crippen, Draw
from sklearn.pipeline import make_pipeline

import dualgp as dg
from dualgp.columns.tables import numbers_of, read_table, text_of

CORES = ("c1ccc({})cc1{}", "c1ccnc({})c1{}", "C1CCN({})CC1{}", "c1cc2ccccc2c({})c1{}", "O=C(N{})c1ccccc1{}")
GROUPS = ("C", "CC", "C(C)C", "CO", "CCO", "CCN", "CC(=O)O", "C(F)(F)F", "CCCl", "C#N", "CC(N)=O", "c1ccccc1", "C1CC1")


def made_up_library() -> tuple[np.ndarray, np.ndarray]:
    """Cores with two groups, and for a score how well they dissolve in fat, as computed by Crippen's method."""
    smiles = [core.format(first, second) for core, first, second in product(CORES, GROUPS, GROUPS)]
    return np.array(smiles), np.array([Crippen.MolLogP(Chem.MolFromSmiles(text)) for text in smiles])


def main() -> None:
    if len(sys.argv) == 4:
        table = read_table(sys.argv[1])
        smiles, y = np.array(text_of(table, sys.argv[2])), numbers_of(table, sys.argv[3])
    else:
        smiles, y = made_up_library()
    order = np.random.default_rng(0).permutation(len(y))
    measured, library = np.split(order, [min(5000, len(y) // 4)])  # the others wait for their measurement
    threshold = np.quantile(y[measured], 0.05)

    pipeline = make_pipeline(dg.MorganFingerprint(radius=2), dg.GPRegressor(dg.Tanimoto(), random_state=0))
    mean, std = pipeline.fit(smiles[measured], y[measured]).predict(smiles[library], return_std=True)
    chance = np.array([NormalDist(m, s).cdf(threshold) for m, s in zip(mean, std, strict=True)])
    best = np.argsort(-chance)[:12]

    print(pipeline[-1].report())
    print(f"R2 on the library: {dg.metrics.r2(y[library], mean):.3f}")
    print(f"Chance to be below {threshold:.2f}, the best twentieth of the {len(measured):,} measured ones:")
    for i, row in zip(best, library[best], strict=True):
        print(f"  {chance[i]:.2f}  predicted {mean[i]:6.2f} ± {std[i]:.2f}, is {y[row]:6.2f}: {smiles[row]}")
    hits = 100 * (y[library] < threshold)
    print(f"{hits[best].mean():.0f} % of these 12 are below it, of the whole library {hits.mean():.0f} %.")
    legends = [f"{mean[i]:.1f} (std {std[i]:.1f}), chance {chance[i]:.2f}" for i in best]
    molecules = [Chem.MolFromSmiles(text) for text in smiles[library[best]]]
    picture = Draw.MolsToGridImage(molecules, molsPerRow=4, subImgSize=(280, 220), legends=legends)
    picture.save("molecules.png")
    print("Wrote molecules.png.")


if __name__ == "__main__":
    main()
