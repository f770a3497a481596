"""Deadlines, and the rules by which a run has diverged or stalled."""

import math
import time

import pytest

from dualgp.solvers.stopping import Deadline, Level, Rules, as_deadline, steps_in_time


def test_a_deadline_is_spent_and_its_stages_began_with_it():
    deadline = Deadline(0.2)
    time.sleep(0.12)
    assert deadline.is_set and not deadline.is_over() and 0 < deadline.left < 0.1
    assert deadline.share(0.5).is_over()
    assert as_deadline(deadline) is deadline


def test_no_limit_never_comes():
    assert not as_deadline(None).is_set
    assert as_deadline(None).left == math.inf


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match="max_seconds must be positive"):
        Deadline(0.0)


@pytest.mark.parametrize(
    ("seconds", "longest", "steps"), [(10.0, 1.0, 5), (9.9, 1.0, 4), (10.0, 2.0, 4), (3.9, 2.0, 0), (-1.0, 1.0, 0)]
)
def test_steps_end_in_time_even_if_one_of_them_is_the_longest(seconds, longest, steps):
    assert steps_in_time(seconds, 2.0, longest) == steps


def test_a_residual_beyond_the_first_and_ten_times_the_smallest_has_blown_up():
    level = Level().update(0.5, 1).update(0.01, 2)
    assert not level.update(0.9, 3).has_blown_up(Rules())  # it began at 1
    assert level.update(1.1, 3).has_blown_up(Rules())
    assert not level.update(1.1, 3).has_blown_up(Rules(growth_limit=math.inf))
    for value in (math.nan, math.inf):
        assert level.update(value, 3).has_blown_up(Rules(growth_limit=math.inf))
        assert level.update(value, 3).smallest == 0.01


def test_a_residual_has_stalled_when_patience_is_over_without_a_tenth_of_progress():
    level = Level().update(0.5, 100)
    for step in range(200, 1000, 100):
        level = level.update(0.5 - 1e-5 * step, step)
    stalled = lambda step, passes, patience=20.0: level.has_stalled(Rules(patience=patience), step, passes)
    assert level.milestone_step == 100
    assert not stalled(400, 1.0) and stalled(401, 1.0)  # never before 300 steps
    assert not stalled(900, 0.02) and stalled(1101, 0.02)  # nor before 20 passes
    assert not stalled(900, 1.0, math.inf)
    assert not level.update(0.4, 1000).has_stalled(Rules(), 1001, 1.0)


def test_asking_changes_nothing():
    level = Level().update(0.5, 1)
    before = repr(level)
    level.has_stalled(Rules(), 10**6, 1.0), level.has_blown_up(Rules()), level.update(0.1, 2)
    assert repr(level) == before
