"""Odd tables and options at the command line: what each run becomes."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from attack.arrays import X, Y
from attack.inputs import BAD, LIMIT, Hang, time_limit
from dualgp.table.cli import main

ROWS = [[f"{a:.3f}", f"{b:.3f}", "green" if c > 0 else "blue", f"{y:.3f}"] for (a, b, c), y in zip(X, Y, strict=True)]
NAMES = ["a", "b", "colour", "y"]
CELLS = [
    "",
    " ",
    "NA",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1e300",
    "1e400",
    "5e-324",
    "1,5",
    "1 000",
    "0x10",
    "1e",
    "--",
    "NaN ",
]
CELLS += [
    "2020-01-31",
    "12:30",
    "true",
    "é",
    "\u0000",
    '"',
    "'",
    "a\tb",
    "x" * 70_000,
    "\uff11",
    "9" * 400,
    "1_000",
    "+1",
    "1.",
    ".5",
]


def text(names: list[str], rows: list[list[str]], delimiter: str = ",", end: str = "\n") -> bytes:
    return end.join([delimiter.join(names), *(delimiter.join(row) for row in rows), ""]).encode()


def odd_tables() -> Iterator[tuple[str, bytes]]:
    """Tables that are odd in one way, as bytes."""
    good = text(NAMES, ROWS)
    for end in ("\n", "\r\n", "\r", "\n\n", "\n\r", "\v", "\u2028"):
        yield f"line end {end!r}", text(NAMES, ROWS, end=end)
    for delimiter in (";", "\t", "|", " ", ", ", "::", "\x01"):
        yield f"delimiter {delimiter!r}", text(NAMES, ROWS, delimiter)
    for encoding in ("utf-8-sig", "utf-16", "latin-1", "utf-32"):
        yield encoding, (good.decode() + "1,2,grün,3\n").encode(encoding)
    for column in range(4):
        for cell in CELLS:
            rows = [list(row) for row in ROWS]
            rows[5][column] = cell
            yield f"cell {cell[:12]!r} in {NAMES[column]}", text(NAMES, rows)
        yield (
            f"without {NAMES[column]}",
            text(
                [name for i, name in enumerate(NAMES) if i != column],
                [[cell for i, cell in enumerate(row) if i != column] for row in ROWS],
            ),
        )
        yield f"{NAMES[column]} twice", text([*NAMES, NAMES[column]], [[*row, row[column]] for row in ROWS])
    for name in ("", " ", '"', "1", "a\u0000", "x" * 100_000, "é", "mean", "a,b"):
        yield f"name {name[:9]!r}", text([name, *NAMES[1:]], ROWS)
    yield "nothing", b""
    yield "blanks", b" \n \n"
    yield "names only", text(NAMES, [])
    yield "one row", text(NAMES, ROWS[:1])
    yield "no names", text(ROWS[0], ROWS[1:])
    yield "no last end", good.rstrip(b"\n")
    yield "short row", good + b"1,2\n"
    yield "long row", good + b"1,2,green,3,4,5\n"
    yield "open quote", good + b'1,2,"green,3\n'
    yield "long open quote", b'a,b,"colour\n' + b"x" * 200_000
    yield "quoted", text([f'"{name}"' for name in NAMES], [[f'"{cell}"' for cell in row] for row in ROWS])
    yield "order", text(NAMES[::-1], [row[::-1] for row in ROWS])
    yield "more columns", text([*NAMES, "z"], [[*row, "7"] for row in ROWS])
    rng = np.random.default_rng(0)
    for i in range(20):
        start = int(rng.integers(len(good)))
        yield f"noise {i}", good[:start] + rng.bytes(9) + good[start:]


OPTIONS = [
    [option, value]
    for option in ("--hold-out", "--tol", "--max-seconds", "--samples", "--seed", "--drop", "--smiles", "--missing")
    for value in ("nan", "inf", "-inf", "-1", "0", "1e400", "100000000", "9" * 30, "", "a", "0.5", "a\0")
]


USES = [
    [command, option, value]
    for command, option in (("predict", "--quantiles"), ("predict", "--keep"), ("sample", "-n"), ("sample", "--seed"))
    for value in (
        "nan",
        "inf",
        "-1",
        "0",
        "1",
        "0.5,",
        "1e-300",
        "100000000",
        "9" * 30,
        "",
        "a",
        "mean",
        "a\0",
        "colour",
    )
]
MODES = (
    ["--robust"],
    ["--noise", "input-dependent"],
    ["--weights", "a"],
    ["--target", "a"],
    ["--transform", "log"],
    ["--transform", "yeo-johnson", "--missing", "drop"],
    ["--hold-out", "0.3", "--verbose"],
)


def damaged_tables(folder: Path, number: int = 40) -> Iterator[Path]:
    """Tables of other kinds with one bit flipped, or cut."""
    import pyarrow
    from pyarrow import parquet

    rng, columns = np.random.default_rng(0), dict(zip(NAMES, zip(*ROWS, strict=True), strict=True))
    table = {name: list(column) if name == "colour" else np.array(column, float) for name, column in columns.items()}
    parquet.write_table(pyarrow.table(table), folder / "good.parquet")
    np.save(folder / "good.npy", np.column_stack([X, Y]))
    (folder / "good.csv.gz").write_bytes(gzip.compress(text(NAMES, ROWS)))
    for name in ("good.parquet", "good.npy", "good.csv.gz"):
        good, damaged = (folder / name).read_bytes(), folder / name.replace("good", "damaged")
        for i in range(number):
            place = int(rng.integers(min(len(good), 130) if damaged.suffix == ".npy" else len(good)))
            bit = bytes([good[place] ^ (1 << int(rng.integers(8)))])
            damaged.write_bytes(good[:place] + bit + good[place + 1 :] if i % 4 else good[:place])
            yield damaged


def runs(folder: Path) -> Iterator[tuple[str, list[str], Path]]:
    """Every run of the command line: its name, arguments, and the file that it writes."""
    good, model, new, output = (folder / name for name in ("good.csv", "model.dgp", "new.csv", "out.csv"))
    good.write_bytes(text(NAMES, ROWS))
    fit = ["fit", "--target", "y", "--quiet", "--samples", "4", "--max-seconds", "5"]
    CliRunner().invoke(main, [*fit, str(good), "-o", str(model)], catch_exceptions=False)
    for i, (name, content) in enumerate(odd_tables()):
        new.write_bytes(content)
        for command in ("predict", "sample", "evaluate"):
            more = ["-n", "3"] if command == "sample" else []
            out = [] if command == "evaluate" else ["-o", str(output)]
            yield f"{command}: {name}", [command, str(model), str(new), *more, *out], output
        yield f"fit: {name}", [*fit, str(new), "-o", str(folder / "odd.dgp")], folder / "odd.dgp"
        mode = MODES[i % len(MODES)]
        yield f"fit {mode}: {name}", [*fit, str(new), "-o", str(folder / "odd.dgp"), *mode], folder / "odd.dgp"
    for option in OPTIONS:
        yield f"fit {option}", [*fit, str(good), "-o", str(folder / "odd.dgp"), *option], folder / "odd.dgp"
    for command, *option in USES:
        yield f"{command} {option}", [command, str(model), str(good), "-o", str(output), *option], output
    for i, damaged in enumerate(damaged_tables(folder)):
        what = [str(model), str(damaged), "-o", str(output)]
        yield f"damaged {i} {damaged.name}", ["predict", *what], output
    for place in ("", ".", "folder/x.csv", "a\0.csv", "/dev/null/x.csv", "x.doc", str(good), str(model), "x" * 300):
        for command in ("predict", "sample", "report", "fit"):
            inputs = {"report": [str(model)], "fit": [str(good), "--target", "y"]}.get(command, [str(model), str(good)])
            yield f"{command} -o {place[:20]!r}", [command, *inputs, "-o", place], output


def judge(arguments: list[str], output: Path) -> tuple[str, str]:
    """What a run becomes, and what it said."""
    for left in (output, *output.parent.glob(f"{output.name}.partial*")):  # of an unfinished fit, which stops the next
        left.unlink(missing_ok=True)
    try:
        with time_limit(LIMIT):
            done = CliRunner().invoke(main, arguments)
    except Hang:
        return "hang", ""
    if isinstance(done.exception, Hang):
        return "hang", ""
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return "traceback", repr(done.exception)[:150]
    if done.exit_code:
        return ("sentence" if "Error: " in done.output else "traceback"), done.output.strip()[:150]
    if output.suffix == ".csv" and output.exists():
        cells = output.read_text().splitlines()[1:]
        if any(cell.strip().lower() in ("nan", "inf", "-inf", "") for row in cells for cell in row.split(",")):
            return "silent NaN", ""
    return "finite", ""


def attack(folder: Path, share: float = 1.0, seed: int = 0) -> Counter:
    """How many runs end how; what is bad is printed."""
    rng, counts = np.random.default_rng(seed), Counter()
    for name, arguments, output in runs(folder):
        if rng.random() < share:
            outcome, said = judge(arguments, output)
            counts[outcome] += 1
            if outcome in BAD:
                print(f"  {outcome}: {name} {said}", file=sys.stderr)
    return counts
