"""A fitted posterior as a BoTorch model, and dualgp's solver for existing BoTorch models (extra `botorch`).

kernels.py  dualgp's kernels and random features at torch tensors
paths.py    prior path + update path in torch, streamed over the data, forwards and backwards
model.py    DualGPModel: a posterior for acquisition functions, and its functions for `draw_matheron_paths`
update.py   dual_prior and dual_update: prior paths and update strategy for a SingleTaskGP
"""

try:
    import botorch as _  # noqa: F401
except ImportError as error:
    raise ImportError("dualgp.botorch needs BoTorch. Install it with pip install 'dualgp[botorch]'.") from error

from dualgp.botorch.kernels import kernel_block
from dualgp.botorch.model import DualGPModel
from dualgp.botorch.paths import StreamedPaths
from dualgp.botorch.update import dual_prior, dual_update

__all__ = ["DualGPModel", "StreamedPaths", "dual_prior", "dual_update", "kernel_block"]
