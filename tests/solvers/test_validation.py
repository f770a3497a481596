"""Rows kept aside choose between predictions."""

import numpy as np

from dualgp.solvers.validation import Case, Neighbourhood


def case(errors, deviation):
    hood = Neighbourhood(np.zeros((len(errors), 1)), np.full(len(errors), deviation**2))
    return Case(hood, errors[:, None], hood.variance, True)


def test_one_row_far_off_does_not_decide():
    z = np.random.default_rng(0).normal(size=1000)
    sharp, wide = case(0.1 * z, 0.1), case(z, 1.0)
    assert sharp.is_surely_better_than(wide) and not wide.is_surely_better_than(sharp)
    z = np.append(80.0, z[1:])  # 80 standard deviations: 3.2 nats on average
    one_off = case(0.1 * z, 0.1)
    assert one_off.score.log_density < wide.score.log_density
    assert one_off.is_surely_better_than(wide) and one_off.merit > wide.merit


def test_a_larger_error_or_a_chance_is_not_surely_better():
    z = np.random.default_rng(0).normal(size=1000)
    assert not case(1.001 * z, 1.0).is_surely_better_than(case(z, 3.0))
    assert not case(z, 1.0).is_surely_better_than(case(1.0 * z, 1.0))
