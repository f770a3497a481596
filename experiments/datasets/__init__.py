"""The data sets of the paper and of the benchmarks, and draws from a prior."""

from datasets.large import load_large
from datasets.molecules import Molecules, docking_f2, docking_f2_counts, dockstring
from datasets.synthetic import prior_draw
from datasets.uci import Dataset, load_uci, published_model

__all__ = [
    "Dataset",
    "Molecules",
    "docking_f2",
    "docking_f2_counts",
    "dockstring",
    "load_large",
    "load_uci",
    "prior_draw",
    "published_model",
]
