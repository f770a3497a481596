"""Hyperparameters from data.

learn.py       `learn`, and which method it takes
problem.py     data, parameters, priors, box and deadline; method.py: the interface of a method
rows.py        the noise of every row; rows with equal inputs merged
parameters.py  the parameters of a model as one vector; priors.py: their priors
exact.py       all rows, exactly: small n
vecchia.py     random points given their neighbours: any n, in seconds
full.py        all rows by pathwise gradients (pathwise.py): any n, and the posterior comes with it
subset.py      neighbourhoods, each exactly: the protocol of Lin et al. (2023)
likelihood.py  the log likelihood of some rows; optimise.py: two optimisers; checkpoint.py: the file to resume from
"""

from dualgp.learning.exact import Exact
from dualgp.learning.full import FullData
from dualgp.learning.learn import Learned, learn
from dualgp.learning.likelihood import log_likelihood
from dualgp.learning.priors import DEFAULT_PRIORS, LogNormal
from dualgp.learning.problem import Step
from dualgp.learning.subset import Subset
from dualgp.learning.vecchia import Neighbours

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
