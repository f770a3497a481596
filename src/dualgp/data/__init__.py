"""Where arrays come from: standard data sets, molecules, and draws from a prior."""

from dualgp.data.fingerprints import MorganFingerprint, fingerprints
from dualgp.data.large import large
from dualgp.data.molecules import Molecules, docking_f2, docking_f2_counts, dockstring, random_split, scaffold_split
from dualgp.data.synthetic import prior_draw
from dualgp.data.uci import Dataset, published_model, uci

__all__ = [
    "Dataset",
    "Molecules",
    "MorganFingerprint",
    "docking_f2",
    "docking_f2_counts",
    "dockstring",
    "fingerprints",
    "large",
    "prior_draw",
    "published_model",
    "random_split",
    "scaffold_split",
    "uci",
]
