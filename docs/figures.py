"""Figures in README and docs come from result files: this writes them between their markers.

    python docs/figures.py            writes what result files say into the pages, and says which pages changed
    python docs/figures.py --check    fails where a page and a file disagree

A figure in a sentence names a file of benchmarks/results or experiments/results, which of its lines, and a template:

    <!--figure peers set=pol; method=GPyTorch: {seconds:.1f} s-->17.2 s<!--/-->

Of several lines the newest counts, unless all of them do: {rmse|min:.4f}. A field inside a field is {exact>rmse:.4f},
with * for any name; {cpu seconds/60:.0f} divides. A table has a column for each line of its marker,

    <!--table scaling by n
    rows | {n:,}
    seconds a pass | {seconds a pass:.1f}
    -->
    ...
    <!--/-->

or, with `across`, a column for each value of a field and one template for all cells. `script=` tables are made by the
function `table` of that script; further words are its argument. Below a table stand the version and the commits of
its lines.
"""

import argparse
import fnmatch
import importlib
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / name / "results" for name in ("benchmarks", "experiments")]
MARKER = re.compile(r"<!--(figure|table) (.*?)-->(.*?)<!--/-->", re.DOTALL)
FIELD = re.compile(r"\{([^{}|:]+?)(?:/(\d[\d.]*))?(?:\|(\w+))?(?::([^{}]*))?\}")
OVER_ALL: dict[str, Callable] = {
    "min": min,
    "max": max,
    "mean": statistics.mean,
    "median": statistics.median,
    "error": lambda found: statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0,
    "count": len,
}
NAMES = {"ours": "dualgp"}  # of methods, in headers
Line = dict[str, Any]


def pages() -> list[Path]:
    """README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def lines_of(name: str) -> list[Line]:
    """All lines of a result file."""
    found = [folder / f"{name}.jsonl" for folder in FOLDERS if (folder / f"{name}.jsonl").exists()]
    if not found:
        raise ValueError(f"There is no {name}.jsonl in {' or '.join(str(f.relative_to(ROOT)) for f in FOLDERS)}.")
    return [json.loads(line) for line in found[0].read_text().splitlines()]


def select(words: str) -> list[Line]:
    """Lines of `file key=value; key=value`."""
    name, _, conditions = words.strip().partition(" ")
    lines = lines_of(name)
    for condition in filter(None, (part.strip() for part in conditions.split(";"))):
        key, _, value = condition.partition("=")
        lines = [line for line in lines if str(line.get(key)) == value]
    if not lines:
        raise ValueError(f"No line of {name}.jsonl has {conditions}.")
    return lines


def values(found: Any, path: str) -> Iterator[Any]:
    """What is at `a>b>c` of a line; of a list, `a>-1` is the last."""
    key, _, rest = path.partition(">")
    if isinstance(found, list):
        names: list = [int(key)]
    else:
        names = fnmatch.filter(found, key) if "*" in key else [key] if key in found else []
    for name in names:
        yield from values(found[name], rest) if rest else [found[name]]


def fill(template: str, lines: list[Line]) -> str:
    """The template with fields of the newest line, or of all of them."""

    def text(match: re.Match) -> str:
        path, divisor, over, form = match.groups()
        found = [value for line in (lines if over else lines[-1:]) for value in values(line, path)]
        if not found:
            raise KeyError(f"No field {path!r} in {lines[-1]}.")
        value = OVER_ALL[over](found) if over else found[0]
        value = value / float(divisor) if divisor else value
        return format(as_number(value) if form and form[-1] in "f%eg," else value, form or "")

    return FIELD.sub(text, template).replace("%", " %")


def as_number(value: Any) -> Any:
    """Numbers that a result file has as text."""
    if not isinstance(value, str):
        return value
    return float(value) if set(value) & set(".e") else int(value)


def shown(name: str, unit: str = "") -> str:
    """A name in a table; numbers with `unit` before them."""
    return f"{unit}{float(name):,g}" if re.fullmatch(r"[\d.]+", name) else NAMES.get(name, name)


def or_nothing(template: str, lines: list[Line], otherwise: str = "") -> str:
    """A cell; the field `otherwise` where a line lacks the field of the template."""
    try:
        return fill(template, lines)
    except KeyError:
        return str(lines[-1].get(otherwise, ""))


def grouped(lines: list[Line], keys: list[str]) -> dict[tuple, list[Line]]:
    """Lines with equal fields together, in the order of the first of them."""
    groups: dict[tuple, list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(str(line.get(key)) for key in keys), []).append(line)
    return groups


def table(words: str) -> str:
    """The Markdown table of a marker."""
    head, _, rest = words.strip().partition("\n")
    if head.startswith("script="):
        name, _, argument = head.removeprefix("script=").partition(" ")
        return f"{importlib.import_module(name).table(*filter(None, [argument]))}\n\n{origin(lines_of(name))}"
    head, _, across = head.partition(" across ")
    selection, _, by = head.partition(" by ")
    lines = select(selection)
    columns = [[part.strip() for part in row.rsplit(" | ", 1)] for row in rest.strip().splitlines()]
    if across:
        (title, template), *_ = columns
        names = [name for (name,) in grouped(lines, [across])]
        header, rows = [title, *(shown(name, f"{across} ") for name in names)], []
        for key, members in grouped(lines, by.split(", ")).items():
            cells = [[line for line in members if str(line.get(across)) == name] for name in names]
            rows.append(
                [", ".join(map(shown, key)), *(or_nothing(template, cell, "failed") if cell else "" for cell in cells)]
            )
    else:
        header = [title for title, _ in columns]
        groups = grouped(lines, by.split(", ")).values() if by else [[line] for line in lines]
        rows = [[or_nothing(template, members) for _, template in columns] for members in groups]
    body = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in body) + f"\n\n{origin(lines)}"


def origin(lines: list[Line]) -> str:
    """The sentence below a table: which version its lines are of."""
    versions = sorted({line["version"] for line in lines if "version" in line})
    commits = list(dict.fromkeys(line["commit"] for line in lines))
    cores = " or ".join(sorted({str(line["cores"]) for line in lines}))
    what = f"dualgp {', '.join(versions)}, " if versions else ""
    noun = "commit" if len(commits) == 1 else "commits"
    return f"*Measured with {what}{noun} {', '.join(commits)}; {cores} core{'' if cores == '1' else 's'}.*"


def with_figures(text: str) -> str:
    """A page with what the result files say now."""

    def replace(match: re.Match) -> str:
        kind, words, _ = match.groups()
        if kind == "table":
            return f"<!--table {words}-->\n{table(words)}\n<!--/-->"
        selection, _, template = words.partition(": ")
        return f"<!--figure {words}-->{fill(template, select(selection))}<!--/-->"

    return MARKER.sub(replace, text)


def main() -> None:
    """Write, or check, every page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    options, differ, wrong = arguments.parse_args(), [], []
    sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "experiments")]
    for page in pages():
        try:
            old, new = page.read_text(), with_figures(page.read_text())
        except (ValueError, KeyError) as error:
            wrong.append(f"{page.relative_to(ROOT)}: {error}")
            continue
        if new != old:
            differ.append(str(page.relative_to(ROOT)))
            if not options.check:
                page.write_text(new)
    if differ and options.check:
        wrong.append(f"These pages say something else than the result files: {', '.join(differ)}. Run: make figures")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{'Changed' if differ else 'Nothing to change in'} {', '.join(differ) or 'README and docs'}.")


if __name__ == "__main__":
    main()
