"""One self-contained HTML page about a fitted model: plots, figures, and what they mean."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from dualgp import __version__, plots
from dualgp._files import replacing
from dualgp.columns.encoding import names_of
from dualgp.sklearn.effects import importances
from dualgp.sklearn.warps import Prediction, scores
from dualgp.table.advice import advise, fifths, readable
from dualgp.table.model import TableModel

MOST_SLICES = 6

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1c2533; max-width: 46rem; margin: 0 auto; padding: 1.2rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
img { max-width: 100%; height: auto; display: block; margin: .6rem auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .3rem .7rem; border-bottom: 1px solid #d8dee8; }
th, td { white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
.slices { display: flex; flex-wrap: wrap; } .slices img { flex: 1 1 17rem; min-width: 0; max-width: 22rem; }
.numbers { display: flex; flex-wrap: wrap; gap: .8rem; } .numbers div { flex: 1 1 8rem; background: #f1f4f9;
border-radius: .5rem; padding: .7rem .9rem; } .numbers b { display: block; font-size: 1.4rem; }
p.note { color: #51607a; font-size: .93rem; } footer { margin-top: 3rem; color: #51607a; font-size: .85rem; }
"""


def write_report(model: TableModel, path: str | os.PathLike, held_out: Any = None) -> None:
    """Write the page. `held_out`: a table with targets; otherwise each fitted row is predicted from all others."""
    page = make_report(model, held_out).encode()
    with replacing(path) as file:
        file.write(page)


def make_report(model: TableModel, held_out: Any = None) -> str:
    """The page as text."""
    import matplotlib

    held_out = None if held_out is None else model.table(held_out)

    with matplotlib.rc_context({"font.size": 11}):
        parts = [_summary(model)]
        outputs = model.outputs()
        for one in outputs:
            heading = [f"<h1>{html.escape(str(one.encoding.target))}</h1>"] if len(outputs) > 1 else []
            parts += [*heading, *_accuracy(one, held_out), *_inputs(one, held_out)]
        parts += _solution(outputs[0])
    names = html.escape(", ".join(names_of(model.encoding.target)))
    title = f"{names}: a Gaussian process on {model.regressor.posterior_.n:,} rows"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        + "\n".join(parts)
        + f"\n<footer>Written by dualgp {__version__}.</footer></body></html>\n"
    )


def _summary(model: TableModel) -> str:
    regressor = model.regressor
    lines = [html.escape(line) for line in (regressor.posterior_.report_size(), regressor.message_)]
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in model.encoding.notes)
    return f"<p>{'<br>'.join(lines)}</p>" + (f"<ul>{notes}</ul>" if notes else "")


def _accuracy(model: TableModel, held_out: Any) -> list[str]:
    checked = model.check(held_out)
    if checked is None:
        return [_note("Without posterior functions there are no error bars to check. Pass held-out data.")]
    prediction, y, what = checked
    found = scores(y, prediction)
    explained = 100 * (1 - found["rmse"] ** 2 / max(float(np.var(y)), 1e-300))
    cards = [
        (readable(found["rmse"]), f"RMSE: the typical error, in units of {model.encoding.target}"),
        (f"{explained:.1f} %", "of the variance explained"),
        (f"{100 * found['coverage90']:.1f} %", "of observations inside the 90 % band"),
        (readable(found["nll"]), "NLL: the surprise for each row; lower is better"),
        (readable(found["crps"]), "CRPS: error and error bars in one number; lower is better"),
    ]
    z, bars = prediction.warp(y), (prediction.location, prediction.spread)
    shape = {"calibrated": prediction.calibration}
    boxes = "".join(f"<div><b>{value}</b>{html.escape(text)}</div>" for value, text in cards)
    return [
        f"<h2>How good are the predictions?</h2><p>Measured on {what}.</p>",
        f'<div class="numbers">{boxes}</div>',
        _figure(lambda axes: plots.predicted_against_observed(z, *bars, warp=prediction.warp, **shape, axes=axes)),
        _figure(lambda axes: plots.calibration(z, *bars, **shape, axes=axes), (4.4, 4.4)),
        _note(
            "On the diagonal, bands contain as many observations as they promise. Above it they are too wide, below it "
            "too narrow. The grey area is what chance allows."
        ),
        _fifths(model, y, prediction),
        _baselines(model, held_out) if held_out is not None else "",
    ]


def _fifths(model: TableModel, y: np.ndarray, prediction: Prediction) -> str:
    """Whether bands are honest for small and for large predictions."""
    rows = "".join(
        f"<tr><td>{readable(low)} to {readable(high)}</td><td>{readable(rmse)}</td><td>{100 * coverage:.1f} %</td></tr>"
        for low, high, coverage, rmse in fifths(y, prediction)
    )
    head = f"<tr><th>predicted {html.escape(str(model.encoding.target))}</th><th>RMSE</th><th>90 % band</th></tr>"
    table = f'<div class="wide"><table>{head}{rows}</table></div>' if rows else ""
    advice = advise(y, prediction, model.encoding.target)
    return table + (f"<p>{html.escape(advice)}</p>" if advice else "")


def _baselines(model: TableModel, held_out: Any) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{readable(line['rmse'])}</td><td>{readable(line['nll'])}</td>"
        f"<td>{100 * line['coverage90']:.1f} %</td><td>{readable(line['crps'])}</td></tr>"
        for name, line in model.evaluate(held_out).items()
    )
    head = "<tr><th></th><th>RMSE</th><th>NLL</th><th>90 % band</th><th>CRPS</th></tr>"
    return f'<div class="wide"><table>{head}{rows}</table></div>'


def _inputs(model: TableModel, held_out: Any) -> list[str]:
    regressor = model.regressor
    if not regressor.kernel_.is_stationary:
        return []  # fingerprints: a column by itself means nothing
    rows = (None, None) if held_out is None else model.complete(held_out)
    found = importances(regressor, *rows)
    height = 1.2 + 0.3 * min(len(found), 20)

    def effect_of(name: str) -> str:
        def draw(axes: Any) -> None:
            plots.effect_of(regressor, name, axes=axes)
            axes.set_xlabel(model.encoding.target) if axes.get_title() else axes.set_ylabel(model.encoding.target)

        return _figure(draw, (4.2, 3))

    return [
        "<h2>What matters?</h2>",
        _figure(lambda axes: plots.importance(regressor, *rows, axes=axes), (5.6, height)),
        _note(
            "How much larger the typical error becomes when a column is shuffled. Two columns that say the same seem "
            "to matter less than they do, because each stands in for the other."
        ),
        "<h2>Along each column</h2>",
        f'<div class="slices">{"".join(effect_of(name) for name in list(found)[:MOST_SLICES])}</div>',
        _note(
            "The columns that matter most, one at a time: the average prediction over some rows of the table with this "
            "column set to each value. Half of the rows are within the shaded part or the bar."
        ),
    ]


def _solution(model: TableModel) -> list[str]:
    posterior = model.regressor.posterior_
    lines = "<br>".join(html.escape(line) for line in model.regressor.report_solution())
    parts = ["<h2>How well were the equations solved?</h2>", f"<p>{lines}</p>"]
    if len(posterior.solution.trace.passes) > 1:
        parts.append(_figure(lambda axes: plots.convergence(model.regressor, axes=axes)))
        parts.append(_figure(lambda axes: plots.convergence(model.regressor, against="seconds", axes=axes)))
        parts.append(
            _note(
                "The residual says how far the equations are from holding, relative to the data. Stopped early, "
                "predictions are less sharp and their error bars wider, not narrower. The scale on the right is a "
                "bound on the error; the error itself is usually much smaller."
            )
        )
    return parts


def _figure(draw: Callable[[Any], Any], size: tuple[float, float] = (5.6, 3.8)) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    draw(axes)
    alt = html.escape(axes.get_title() or f"{axes.get_ylabel()} against {axes.get_xlabel()}")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=200)
    return f'<img alt="{alt}" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'
