"""Where arrays come from: standard data sets, and draws from a prior."""

from dualgp.data.large import large
from dualgp.data.synthetic import prior_draw
from dualgp.data.uci import Dataset, published_model, uci

__all__ = ["Dataset", "large", "prior_draw", "published_model", "uci"]
