"""What learning says: a line while it runs, and a sentence about what was done."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dualgp.learning.full import FullData
from dualgp.learning.method import Ending, Outcome
from dualgp.learning.problem import Problem, Step

ENDINGS = {
    Ending.INTERRUPTED: " Interrupted: this is the best so far.",
    Ending.TIMED_OUT: " The time limit ended it: this is the best so far.",
}


@contextmanager
def reporter(progress: bool | Callable[[Step], Any]) -> Iterator[Callable[[Step], Any]]:
    """What to call with each step: the user's function, a line on the screen, or nothing."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda step: None
    else:
        from tqdm.auto import tqdm

        with tqdm(bar_format="{desc}", desc="Learning: compiling the first step") as bar:
            yield lambda step: bar.set_description_str(_line(step))


def _line(step: Step) -> str:
    what = "log likelihood gained" if step.stage == FullData.stage else "log likelihood"
    state = f"Learning from {step.stage}, {step.seconds:.0f} s: {what} {step.value:.4f} a point"
    return f"{state}, noise {float(step.model.noise):.3g}"


def summarise(problem: Problem, outcome: Outcome) -> str:
    """What was done, what it took and why it ended."""
    stages = Counter(step.stage for step in problem.history)
    how = "Learned from " + ", then ".join(f"{stage} ({num} steps)" for stage, num in stages.items())
    if not stages:
        how = "Had been learned before; went on with the last solve" if problem.file.was_learned else "Learned nothing"
    passes = problem.history[-1].passes if problem.history else 0.0
    passes += outcome.posterior.solution.passes if outcome.posterior is not None else 0.0
    cost = f"{problem.deadline.elapsed:.3g} s" + (f" and {passes:.3g} passes" if passes else "")
    return f"{how} in {cost}.{ENDINGS.get(outcome.ending, '')}"
