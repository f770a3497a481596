"""Prior paths + update paths = posterior paths (Matheron's rule).

    f(x)  =  mean  +  phi(x) @ w  +  k(x, X) @ (K + noise I)^-1 (y - mean - phi(X) @ w - epsilon)
             -------- prior path      ------------------------------------------------ far field

Iterations find the inverse and may stop early. The near field corrects for that around x.

prior.py      draws from the prior as functions
near.py       the near field: one more block step for the nearest rows of the query
predictor.py  mean and deviations at a block of points: the sum of prior, far field and near field, formed here only
paths.py      posterior functions, to be called and differentiated
posterior.py  the interface of a posterior; observations.py: the noise of new observations
bounds.py     bounds on the error of the mean
exact.py      standard deviations from a Cholesky factor; sampled.py: from samples
terms.py      one term of a sum of kernels
sentences.py  the sentences of reports

Nothing here solves equations: weights are arrays, from any solver.
"""

from dualgp.posterior.exact import ExactPosterior
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.posterior import AllRows, Posterior
from dualgp.posterior.sampled import SampledPosterior

__all__ = ["AllRows", "ExactPosterior", "Posterior", "SamplePaths", "SampledPosterior"]
