"""Accuracy, seconds and memory of dualgp and its peers, from the results of peers.py: docs/pictures/peers.png.

python benchmarks/chart.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from record import load

SETS = ("pol", "elevators", "bike", "protein", "keggdirected")
STYLES = {
    "dualgp, mean": ("#4477aa", "o"),
    "dualgp, mean + 64 samples": ("#223355", "s"),
    "GPyTorch": ("#ee6677", "^"),
    "scikit-learn": ("#ccbb44", "v"),
    "GPBoost": ("#228833", "D"),
}
FAILED, LARGEST = "failed", 0.35  # the share above the best error that is drawn; more is at the upper edge
OUTPUT = Path(__file__).parents[1] / "docs" / "pictures" / "peers.png"


def main() -> None:
    newest = {(line["set"], line["method"]): line for line in load("peers")}
    figure, panels = plt.subplots(2, len(SETS), figsize=(12, 5.2), sharex=True, sharey="row", layout="constrained")
    for (above, below), name in zip(panels.T, SETS, strict=True):
        best = min(line["rmse"] for (where, _), line in newest.items() if where == name and "rmse" in line)
        for method, (colour, marker) in STYLES.items():
            line = newest.get((name, method), {FAILED: ""})
            if FAILED in line:
                continue
            worse = line["rmse"] / best - 1
            style = {"color": colour, "marker": marker, "linestyle": "none", "ms": 8, "label": method}
            above.plot(line["seconds"], 100 * min(worse, LARGEST), **style)
            below.plot(line["seconds"], line["gigabytes"], **style)
            if worse > LARGEST:
                above.annotate(
                    "not converged",
                    (line["seconds"], 100 * LARGEST),
                    (-8, -14),
                    textcoords="offset points",
                    fontsize=8,
                    ha="right",
                )
        lost = [method for method in STYLES if FAILED in newest.get((name, method), {})]
        if lost:
            below.text(
                0.97,
                0.93,
                f"{', '.join(lost)}:\nout of 24 GB",
                transform=below.transAxes,
                ha="right",
                va="top",
                fontsize=8,
            )
        above.set_title(name, fontsize=11)
        below.set(xscale="log", xlabel="seconds", xlim=(0.1, 150), yscale="log")
        below.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        below.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
        below.minorticks_off()
    panels[0, 0].set(ylabel="RMSE above the best, %", ylim=(-2, 100 * LARGEST + 2))
    panels[1, 0].set_ylabel("peak memory, GB")
    for axes in panels.ravel():
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(OUTPUT, dpi=130)


if __name__ == "__main__":
    main()
