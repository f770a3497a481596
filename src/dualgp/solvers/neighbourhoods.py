"""Random partitions of the data into groups of neighbours."""

import numpy as np
from jaxtyping import Float, Int


def neighbourhoods(coordinates: Float[np.ndarray, "n c"], size: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """An order of the n points in which every `size` consecutive ones, from 0 on, are near each other.

    A random projection tree: it halves all points at the median of a random direction, then each half, and so on. Trees
    with other directions have other borders, so that few trees separate two neighbours.
    """
    n, c = coordinates.shape
    num_groups = -(-n // size)
    num_levels = (num_groups - 1).bit_length()
    order = np.arange(n, dtype=np.int32)
    for level in range(num_levels):
        place = coordinates @ rng.uniform(-1.0, 1.0, (c,)).astype(coordinates.dtype)
        # A cell of this level is a range of whole groups, and its halves are cells of the next.
        groups = -(-np.arange(2 ** (level + 1) + 1) * num_groups // 2 ** (level + 1))
        borders = np.minimum(groups * size, n).tolist()
        for start, middle, stop in zip(borders[:-2:2], borders[1::2], borders[2::2], strict=True):
            cell = order[start:stop]
            if level < num_levels - 1:
                cut = np.argpartition(place[cell], min(middle, stop - 1) - start)
            else:  # points within a group are in order, too, so that every k-th of them covers it evenly
                cut = np.argsort(place[cell])
            order[start:stop] = cell[cut]
    return order
