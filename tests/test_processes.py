"""A process that is forked or interrupted: an answer or a sentence, and no hang."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import dualgp as dg

FORKED = """
import os, sys, numpy as np, dualgp as dg
x = np.random.default_rng(0).normal(size=(300, 2))
fit = lambda: dg.GPRegressor(learn=False, n_samples=4, random_state=0).fit(x, x[:, 0])
if sys.argv[1] == "after":
    parent = fit()
pid = os.fork()
if pid == 0:
    for what in (fit, lambda: parent.predict(x)) if sys.argv[1] == "after" else (fit,):
        try:
            print(type(what()).__name__, flush=True)
        except RuntimeError as error:
            print("refused:", error, flush=True)
    os._exit(0)
print("child", os.waitpid(pid, 0)[1], "parent", type(fit()).__name__)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fork_before_the_first_fit_works_and_one_after_it_is_told_so(when):
    done = subprocess.run([sys.executable, "-c", FORKED, when], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[-1] == "child 0 parent GPRegressor", done
    if when == "before":
        assert lines[:-1] == ["GPRegressor"]
    else:
        assert len(lines) == 3 and all("refused: This process was forked" in line for line in lines[:2])


THREADS = """
import sys, threading, numpy as np, dualgp as dg
rng = np.random.default_rng(0)
problems = [(rng.normal(size=(n, 2)), solver) for n in (60, 90) for solver in ("auto", dg.BlockDescent(block_size=30))]

def work(x, solver):
    fitted = dg.GPRegressor(dg.Matern32(1.0), noise=0.01, learn=False, solver=solver, n_samples=3, random_state=0)
    fitted.fit(x, x[:, 0]).update(x[:5] + 0.1, x[:5, 1])
    return np.stack([*fitted.predict(x, return_std=True), *fitted.sample_functions()(x)])

alone = [work(*problem) for problem in problems]
found = [None] * 12
def run(place):
    found[place] = work(*problems[place % len(problems)])
threads = [threading.Thread(target=run, args=(place,)) for place in range(len(found))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(max(abs(one - alone[place % len(problems)]).max() for place, one in enumerate(found)))
"""


def test_threads_that_fit_at_the_same_time_get_what_each_would_get_alone():
    # To rounding: OpenBLAS's threads are shared, and sums in another order end in other bits.
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and float(done.stdout) < 1e-4, done


INTERRUPTED = """
import sys, numpy as np, dualgp as dg
rng = np.random.default_rng(0)
x = rng.normal(size=(6000, 4))
print("ready", flush=True)
try:
    fitted = dg.GPRegressor(n_samples=4, random_state=0).fit(x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=6000))
except KeyboardInterrupt:
    print("KeyboardInterrupt")
else:
    finite = all(np.isfinite(part).all() for part in fitted.predict(x[:10], return_std=True))
    print("finished" if fitted.finished_ else "best so far", finite)
"""


@pytest.mark.parametrize("seconds", np.random.default_rng(0).uniform(0.0, 12.0, 4).round(2))
def test_ctrl_c_in_python_ends_a_fit_with_the_best_so_far_or_the_interrupt(seconds):
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[0].strip()
    finally:
        process.kill()
    assert said in ("KeyboardInterrupt", "best so far True", "finished True")
    # Where the signal arrives inside an import, the interpreter ends as one that was interrupted, whoever caught it.
    assert process.returncode in (0, -signal.SIGINT)


@pytest.mark.parametrize("seconds", np.random.default_rng(1).uniform(0.5, 10.0, 3).round(2))
def test_ctrl_c_at_the_command_line_leaves_a_model_that_works_or_says_that_it_was_interrupted(seconds, tmp_path):
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 4))
    table, model = tmp_path / "t.csv", tmp_path / "m.dgp"
    np.savetxt(table, np.c_[x, np.sin(x[:, 0]) + 0.1 * x[:, 1]], delimiter=",", header="a,b,c,d,y", comments="")
    command = ["fit", str(table), "--target", "y", "--samples", "4", "--quiet", "-o", str(model)]
    process = subprocess.Popen([sys.executable, "-m", "dualgp", *command], stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    if model.exists():
        assert process.returncode in (0, 130) and dg.load(model).predict({name: [0.0] for name in "abcd"})["std"] > 0
    else:  # before the program is there, Python ends it; inside an import, as the interpreter ends
        assert process.returncode in (130, 1, -signal.SIGINT) and ("Interrupted." in errors or "Error" not in errors)
    assert not list(tmp_path.glob("*.writing"))
