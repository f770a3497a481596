"""Hyperparameters from data.

learn.py       `learn`, and which method it takes
parameters.py  the numbers of a model as one vector; priors.py: what is believed about them before
exact.py       all rows, exactly: small n
neighbours.py  random points given their neighbours: any n, in seconds
full.py        all rows by pathwise gradients: any n, and the posterior comes with it
subset.py      neighbourhoods, each exactly: the protocol of Lin et al. (2023)
likelihood.py  the log likelihood of groups of rows; problem.py: what the methods share
"""

from dualgp.learning.exact import Exact
from dualgp.learning.full import FullData
from dualgp.learning.learn import Learned, learn
from dualgp.learning.likelihood import log_likelihood
from dualgp.learning.neighbours import Neighbours
from dualgp.learning.priors import DEFAULT_PRIORS, LogNormal
from dualgp.learning.problem import Step
from dualgp.learning.subset import Subset

__all__ = [
    "DEFAULT_PRIORS",
    "Exact",
    "FullData",
    "Learned",
    "LogNormal",
    "Neighbours",
    "Step",
    "Subset",
    "learn",
    "log_likelihood",
]
