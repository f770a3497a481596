import numpy as np
import pytest

from cases import points
from dualgp.solvers.neighbourhoods import neighbourhoods


def groups(coordinates, size, seed=0):
    order = neighbourhoods(coordinates, size, np.random.default_rng(seed))
    assert sorted(order) == list(range(len(coordinates)))
    return [order[start : start + size] for start in range(0, len(order), size)]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (7, 10), (64, 8), (1000, 90), (1001, 1)])
def test_every_point_is_in_one_group(n, size):
    groups(points(n), size)


def test_points_of_a_group_are_near_each_other():
    x = points(1024, d=2)
    spread = np.mean([x[group].std(axis=0).prod() for group in groups(x, 32)])
    assert spread < 3 * 32 / 1024 * x.std(axis=0).prod()  # a group's area is about its share of the data's


def test_another_key_cuts_elsewhere_but_rarely_between_neighbours():
    x = np.sort(points(1024, d=1), axis=0)
    together = np.zeros(1023)
    for seed in range(20):
        group_of = np.empty(1024, int)
        for number, group in enumerate(groups(x, 32, seed)):
            group_of[group] = number
        together += group_of[1:] == group_of[:-1]
    assert together.mean() > 0.95 * 20
    x = points(1024, d=2)
    assert {tuple(sorted(g)) for g in groups(x, 32, 0)} != {tuple(sorted(g)) for g in groups(x, 32, 1)}


def test_equal_points_and_infinite_lengthscales_are_no_trouble():
    assert len(groups(np.zeros((100, 3)), 10)) == 10
