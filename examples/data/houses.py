"""Makes houses.csv and offers.csv: made-up houses with prices in thousands, and some for sale with what is asked.

python examples/data/houses.py
"""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
A_METRE = {"Basel": 9.0, "Bern": 7.5, "Chur": 6.0, "Geneva": 11.5, "Zug": 13.0}  # thousands for a square metre


def houses(n: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Lines of a table, and what each house is worth: new and very old ones are dear, gardens cost extra."""
    area = (25 + rng.gamma(9, 12, n)).astype(int)
    built, floor = rng.integers(1890, 2024, n), rng.integers(0, 7, n)
    city = rng.choice(list(A_METRE), n, p=[0.25, 0.3, 0.15, 0.2, 0.1])
    garden = (floor == 0) & (rng.random(n) < 0.5)
    age = 2024 - built
    appeal = 1 + 0.25 * np.exp(-age / 12) + 0.18 * np.exp(-(((age - 110) / 18) ** 2)) + 0.015 * floor
    worth = np.array([A_METRE[name] for name in city]) * area * appeal + 60 * np.sin(area / 25) + 80 * garden
    known = np.where(rng.random(n) < 0.03, "", built)
    columns = zip(area, known, city, floor, np.where(garden, "yes", "no"), strict=True)
    return [",".join(map(str, row)) for row in columns], worth


def main() -> None:
    rng = np.random.default_rng(0)
    for name, last, n, width in (("houses", "price", 3000, 0.06), ("offers", "asked", 40, 0.12)):
        lines, worth = houses(n, rng)
        price = (worth * np.exp(width * rng.standard_normal(n))).astype(int)
        rows = [f"{line},{value}" for line, value in zip(lines, price, strict=True)]
        (FOLDER / f"{name}.csv").write_text("\n".join([f"area,built,city,floor,garden,{last}", *rows]) + "\n")


if __name__ == "__main__":
    main()
