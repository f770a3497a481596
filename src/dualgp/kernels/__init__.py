"""What similarity means. A kernel gives matrix blocks, its diagonal, and random features of the prior it stands for.

base.py        Kernel, and the algebra k1 + k2, k1 * k2, 2.0 * k
stationary.py  RBF, Matern12, Matern32, Matern52: a formula of the scaled distance each
distances.py   squared distances by matrix products, accurate for near-duplicates in float32
tanimoto.py    Tanimoto: fingerprints of molecules; counts.py: sums of minima, fast
columns.py     On: a kernel on some of the columns
features.py    random features, with the same algebra as the kernels; hashes.py: those of Tanimoto
"""

from dualgp.kernels.base import Kernel, Product, Scale, Sum
from dualgp.kernels.columns import On
from dualgp.kernels.features import Features
from dualgp.kernels.stationary import RBF, Matern12, Matern32, Matern52
from dualgp.kernels.tanimoto import Tanimoto

__all__ = ["RBF", "Features", "Kernel", "Matern12", "Matern32", "Matern52", "On", "Product", "Scale", "Sum", "Tanimoto"]
