"""Where arrays come from: standard data sets, and draws from a prior."""

from dualgp.data.synthetic import prior_draw
from dualgp.data.uci import Dataset, published_model, uci

__all__ = ["Dataset", "prior_draw", "published_model", "uci"]
