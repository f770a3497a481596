"""Kernels: matrix blocks, their diagonal, and random features of the prior.

base.py        Kernel, and the algebra k1 + k2, k1 * k2, 2.0 * k
stationary.py  RBF, Matern12, Matern32, Matern52, RationalQuadratic: formulas of the scaled distance
rough_smooth.py RoughSmooth: a sum of two of these kernels with one distance
laplace.py     Laplace: the 1-norm; periodic.py: Periodic; linear.py: Linear, Constant; scaled.py: the base class
distances.py   squared distances by matrix products, accurate for near-duplicates in float32; sums over the inputs
tanimoto.py    Tanimoto: fingerprints of molecules; counts.py: sums of minima, fast
columns.py     On: a kernel on some of the columns; OnSphere: on longitude and latitude
features.py    random features, with the same algebra as the kernels
frequencies.py draws from spectral densities, stratified; hashes.py: hashes for Tanimoto
"""

from dualgp.kernels.base import Kernel, Product, Scale, Sum
from dualgp.kernels.columns import On, OnSphere
from dualgp.kernels.features import Features
from dualgp.kernels.laplace import Laplace
from dualgp.kernels.linear import Constant, Linear
from dualgp.kernels.periodic import Periodic
from dualgp.kernels.rough_smooth import RoughSmooth
from dualgp.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from dualgp.kernels.tanimoto import Tanimoto

__all__ = [
    "RBF",
    "Constant",
    "Features",
    "Kernel",
    "Laplace",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "On",
    "OnSphere",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "RoughSmooth",
    "Scale",
    "Sum",
    "Tanimoto",
]
