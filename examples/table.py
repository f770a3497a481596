"""From a CSV file to predictions with error bars: the one-line estimator, and how good it is.

python examples/table.py [file.csv target]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import dualgp as dg
from dualgp.columns.tables import read_table
from dualgp.table.model import TableModel, fit_table


def made_up_houses(path: Path) -> Path:
    """A file, in case you have none at hand."""
    rng = np.random.default_rng(0)
    area, rooms = rng.gamma(4, 30, 1200), rng.integers(1, 8, 1200)
    city = rng.choice(["Basel", "Bern", "Zug"], 1200)
    price = 3e3 * area + 5e4 * np.sin(area / 20) + 2e4 * rooms + 2e5 * (city == "Zug") + 2e4 * rng.normal(size=1200)
    lines = [f"{a:.1f},{r},{c},{p:.0f}" for a, r, c, p in zip(area, rooms, city, price, strict=True)]
    path.write_text("area,rooms,city,price\n" + "\n".join(lines))
    return path


def show(model: TableModel, held_out) -> None:
    """Scores on rows that were not fitted to, and a few predictions."""
    for name, line in model.evaluate(held_out).items():
        print(f"{name:18} RMSE {line['rmse']:10.1f}   inside the 90 % band {100 * line['coverage90']:5.1f} %")
    found = model.predict(held_out)
    for i in range(3):
        print(f"predicted {found['mean'][i]:10.0f}, between {found['q05'][i]:10.0f} and {found['q95'][i]:10.0f}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, target = sys.argv[1:] if len(sys.argv) == 3 else (made_up_houses(Path(folder) / "houses.csv"), "price")
        table = read_table(file)
        cut = table.num_rows * 9 // 10
        model = fit_table(table.slice(0, cut), target, random_state=0)
        print(model.regressor.report())
        show(model, table.slice(cut))
        dg.save(model, Path(folder) / "model.dgp")
        print(dg.load(Path(folder) / "model.dgp").encoding.inputs)


if __name__ == "__main__":
    main()
