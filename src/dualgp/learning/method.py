"""The interface of a method of learning: it runs on a problem until it is done or stopped, and returns an outcome."""

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from dualgp._checks import check_count, check_positive_number
from dualgp._types import RandomKey
from dualgp.learning.candidates import Choice
from dualgp.learning.parameters import Vector
from dualgp.posterior import Posterior

if TYPE_CHECKING:
    from dualgp.learning.problem import Problem


class Ending(enum.Enum):
    """Why learning ended."""

    COMPLETE = "Complete"
    STOPPED = "The progress function ended it"
    TIMED_OUT = "The time limit ended it"
    INTERRUPTED = "Interrupted"


class Stop(Exception):
    """Raised where learning has to end, even within an evaluation; a `Stage` catches it."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending


class Stage:
    """A context that ends at a `Stop` or at Ctrl-C; `ending` says how it ended."""

    ending = Ending.COMPLETE

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, (Stop, KeyboardInterrupt)):
            self.ending = error.ending if isinstance(error, Stop) else Ending.INTERRUPTED
        return self.ending is not Ending.COMPLETE


@dataclass(frozen=True)
class Outcome:
    """The best parameters that a method found, and the posterior given all rows if the method has solved for one.

    `problem` is the given one, or the same with another kernel, and then `choice` says why.
    """

    problem: "Problem"
    vector: Vector
    ending: Ending
    posterior: Posterior | None = None
    choice: Choice | None = None


@dataclass(frozen=True)
class Method(ABC):
    """A way of learning. Its settings are fields; numbers among them are positive."""

    needs_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.type in (int, "int"):
                check_count(value, setting.name, 1)
            elif setting.type in (float, "float"):
                check_positive_number(value, setting.name)

    @abstractmethod
    def run(self, problem: "Problem", key: RandomKey) -> Outcome:
        """Learn from the given model on, until it is done, the deadline comes or somebody stops it."""
