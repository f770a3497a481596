"""Time and memory against n, ours and peers, from the results of peers.py and scaling.py: docs/speed.png.

python benchmarks/chart.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

from record import load

SIZES = {"pol": 13_500, "elevators": 14_940, "bike": 15_642, "protein": 41_157, "keggdirected": 43_945}
STYLES = {
    "dualgp, mean": ("C0", "o"),
    "dualgp, mean + 64 samples": ("C0", "s"),
    "GPyTorch": ("C1", "^"),
    "scikit-learn": ("C2", "v"),
    "GPBoost": ("C3", "D"),
}
OUTPUT = Path(__file__).parents[1] / "docs" / "speed.png"


def main() -> None:
    figure, (time, memory) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for method, (colour, marker) in STYLES.items():
        lines = [line for line in load("peers") if line["method"] == method and "seconds" in line]
        if not lines:
            continue
        n = [SIZES[line["set"]] for line in lines]
        style = {"color": colour, "marker": marker, "linestyle": "none", "label": method}
        style["markerfacecolor"] = "none" if "64" in method else colour
        time.plot(n, [line["seconds"] for line in lines], **style)
        memory.plot(n, [line["gigabytes"] for line in lines], **style)
    for axes in (time, memory):
        axes.set(xscale="log", yscale="log")
    scaling = load("scaling")
    sizes = [int(line["n"]) for line in scaling]
    time.plot(sizes, [line["seconds a pass"] for line in scaling], "C0--", label="dualgp, one pass, 9 columns")
    memory.plot(sizes, [line["gigabytes"] for line in scaling], "C0--", label="dualgp, 9 columns, K not kept")
    time.set(title="Seconds from imported libraries to predictions", ylabel="seconds")
    memory.set(title="Peak memory of the process", ylabel="gigabytes")
    memory.set_yticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"])
    memory.yaxis.set_minor_formatter(NullFormatter())
    for axes in (time, memory):
        axes.set(xlabel="points", xlim=(1e4, 5e5))
        axes.set_xticks([1e4, 3e4, 1e5, 3e5], ["10,000", "30,000", "100,000", "300,000"])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    figure.savefig(OUTPUT, dpi=130)


if __name__ == "__main__":
    main()
