"""When to stop: one deadline for all stages of a call, and the rules for divergence and stalling."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from dualgp._checks import check_number

PATIENT_STEPS = 300  # the fewest steps in which a residual that does not fall counts as stalled
PROGRESS = 0.9  # a residual makes progress when it falls below this fraction of its last milestone


class Deadline:
    """A time limit that begins with the user's call; every stage of the call obeys it.

    `Deadline(None)` is no limit.
    """

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None:
            check_number(seconds, "max_seconds")
        if seconds is not None and not seconds > 0:
            raise ValueError(f"max_seconds must be positive, got {seconds!r}. Leave it out for no limit.")
        self.seconds = math.inf if seconds is None else float(seconds)
        self.began = time.perf_counter()

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.seconds)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Remaining seconds: infinite without a limit, negative after the deadline."""
        return self.seconds - self.elapsed

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.left <= 0

    def share(self, share: float) -> Deadline:
        """The deadline of a first stage, which may take this fraction of the limit and has the same beginning."""
        stage = Deadline(None)
        stage.seconds, stage.began = share * self.seconds, self.began
        return stage


def as_deadline(limit: Deadline | float | None) -> Deadline:
    """The deadline itself, or one that begins now, from seconds or None for no limit."""
    return limit if isinstance(limit, Deadline) else Deadline(limit)


def steps_in_time(seconds: float, per_step: float, longest_step: float) -> int:
    """The most steps that end within `seconds`, if one of them may take `longest_step` times as long as the others."""
    return max(0, math.floor(seconds / per_step - (longest_step - 1.0)))


@dataclass(frozen=True)
class Rules:
    """Constants of a method that stopping depends on, besides the residual.

    - `growth_limit`: the run has diverged if the residual exceeds the smallest one so far by this factor.
    - `patience`: the run has stalled if the residual falls by less than a tenth in this many passes.
    - `longest_step`: how long the longest step takes, in units of an ordinary one.
    - `if_unfinished`: the advice for a run that ended early. Error bars are then too wide if weights are linear in b.
    """

    growth_limit: float = 10.0
    patience: float = 20.0
    longest_step: float = 1.0
    if_unfinished: str = "Give it more time (refine), or accept wider error bars."


@dataclass(frozen=True)
class Level:
    """The history of the relative residual of all columns together that stopping depends on.

    `milestone` is the smallest residual when it last made progress, at step `milestone_step`.
    """

    first: float = 1.0
    smallest: float = 1.0
    now: float = math.inf
    milestone: float = math.inf
    milestone_step: int = 0

    def update(self, now: float, step: int) -> Level:
        """The history after a chunk of steps that ended at step number `step`."""
        smallest = min(self.smallest, now)  # in this order a NaN changes nothing
        if smallest < PROGRESS * self.milestone:
            return Level(self.first, smallest, now, smallest, step)
        return replace(self, smallest=smallest, now=now)

    def has_blown_up(self, rules: Rules) -> bool:
        """Whether the residual has grown beyond the limit, or is not a number."""
        return not math.isfinite(self.now) or self.now > max(self.first, rules.growth_limit * self.smallest)

    def has_stalled(self, rules: Rules, step: int, passes_per_step: float) -> bool:
        """Whether the last third of the run, and the method's patience, went by without progress."""
        patience = max(PATIENT_STEPS, rules.patience / passes_per_step, step / 3)
        return step - self.milestone_step > patience
