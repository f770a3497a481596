"""When to stop: one deadline for everything that a call does, budgets, and the rules of convergence."""

from __future__ import annotations

import math
import time


class Deadline:
    """A time limit that is being spent: it begins where the user's call begins, and all that the call does looks at it.

    `Deadline(None)` never comes.
    """

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None and not seconds > 0:
            raise ValueError(f"max_seconds must be positive, got {seconds!r}. Leave it out for no limit.")
        self.seconds = math.inf if seconds is None else float(seconds)
        self.began = time.perf_counter()

    @property
    def is_set(self) -> bool:
        """Whether there is a limit at all."""
        return math.isfinite(self.seconds)

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds until it comes: infinity without a limit, negative when it is over."""
        return self.seconds - self.elapsed

    def is_over(self) -> bool:
        """Whether it has come."""
        return self.left <= 0

    def share(self, share: float) -> Deadline:
        """The deadline of a first stage, which may take this share of the whole limit; it began when this one did."""
        stage = Deadline(None)
        stage.seconds, stage.began = share * self.seconds, self.began
        return stage


def as_deadline(limit: Deadline | float | None) -> Deadline:
    """A deadline that has begun already, or one that begins now: seconds, or None for no limit."""
    return limit if isinstance(limit, Deadline) else Deadline(limit)
