"""Prior paths + update paths = posterior paths (Matheron's rule).

    f(x)  =  mean  +  phi(x) @ w  +  k(x, X) @ (K + noise I)^-1 (y - mean - phi(X) @ w - epsilon)
             -------- prior path      ------------------------------------------------ far field

The inverse is found by iterations and may be far from converged. The near field corrects for that around x.

prior.py      draws from the prior as functions
near.py       the near field: one more block step around the query, with its nearest rows
predictor.py  mean and deviations at a block of points: prior, far field and near field put together, in this one place
paths.py      posterior functions, to be called and differentiated
posterior.py  what one asks of a posterior; observations.py: the noise of what would be observed
bounds.py     how far the mean is from the exact one at most
exact.py      standard deviations from a Cholesky factor; sampled.py: from samples
terms.py      one term of a sum of kernels
sentences.py  what was done, in plain words

Nothing here solves anything: weights come in as arrays from whatever solver.
"""

from dualgp.posterior.exact import ExactPosterior
from dualgp.posterior.paths import SamplePaths
from dualgp.posterior.posterior import AllRows, Posterior
from dualgp.posterior.sampled import SampledPosterior

__all__ = ["AllRows", "ExactPosterior", "Posterior", "SamplePaths", "SampledPosterior"]
