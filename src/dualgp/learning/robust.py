"""Outliers: robust conjugate Gaussian processes (Altamirano, Briol and Knoblauch, ICML 2024, arXiv 2311.00463).

With m_i what the other rows say about row i, r = y - m and c a few standard deviations of such differences, the
posterior under the inverse multiquadric weight w^2 = 1 / (1 + (r / c)^2) is that of a Gaussian process with

    variance_i  =  noise * (1 + (r_i / c_i)^2)          y_i  +  2 noise * r_i / (c_i^2 + r_i^2)

in place of the noise and of y: still one solve, and no row moves the answer by more than about noise / c. The mean m
decides how robust it is (RCaGP, arXiv 2505.21133): here it is the prediction of row i by its nearest other rows, those
left out that are outliers beyond doubt. The kernel and the noise are learned without these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

NEIGHBOURS = 64  # that predict a row
INNER = 0.8  # of the rows at least are ordinary: their differences give the scale of all
OF_NORMAL = 1.2815515655446004  # standard deviations that this share of a normal distribution is within
BEYOND_DOUBT = 5.0  # standard deviations from the others: rows that are not learned from
SOFT = 4.0  # standard deviations: c
ROUNDS = 2  # of learning again without the outliers that the model before found
LOST = 0.2  # of its weight: a row with less has lost most of it


class Weighing(NamedTuple):
    """How far each row is from what others say: `difference` = y - m, and c, `soft`.

    `ordinary`: rows that are no outliers beyond doubt.
    """

    difference: Float[np.ndarray, " n"]
    soft: Float[np.ndarray, " n"]
    ordinary: Bool[np.ndarray, " n"]

    @property
    def factors(self) -> Float[np.ndarray, " n"]:
        """What the noise is multiplied by."""
        return 1.0 + (self.difference / self.soft) ** 2

    def shift(self, noise: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """What is added to the targets, for rows with this noise."""
        return 2.0 * noise * self.difference / (self.soft**2 + self.difference**2)

    def __str__(self) -> str:
        lost = int(np.count_nonzero(self.factors > 1.0 / LOST))
        share = 100.0 * lost / len(self.soft)
        return f"{lost:,} rows ({share:.2g} %) are so far from what others say that they lost most of their weight."
