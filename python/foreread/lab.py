"""The lab: simulates and measures workloads and traces, and returns tables.

    from foreread import lab

    result = lab.compare("boot-ide", on="model:rbd")        # shows as a table in a notebook
    result.to_pandas()[["policy", "time_s", "overfetch"]]
    result.plot()
    lab.sweep(["a.frt", "b.frt"], policies=["auto", "linux-6.18"], devices=["model:rbd"], caches=["16M", "256M"], out="cells")

    function ──► python -m foreread COMMAND --json - ──► Table: rows of dicts ──► Arrow, pandas, HTML, a plot

Each function runs the command of this package in a separate process, so Ctrl-C ends it and leaves nothing behind in this process.
The names of columns end in their units: `_s` seconds, `_us` microseconds, `_bytes`. The functions raise `ValueError` for invalid
arguments, and `OSError` if something is not possible on this machine.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from ._sweep import SWEEP_COLUMNS, _arguments, _cells, _size, sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "SWEEP_COLUMNS", "Table", "compare", "explain", "models", "policies", "probe", "read_trace", "simulate", "sweep", "workloads",
    "write_trace",
]


def command(*arguments: str, progress: bool = False) -> str:
    """Runs the command and returns its output. With `progress`, its progress is shown on stderr."""
    started = [sys.executable, "-m", "foreread", *arguments]
    done = subprocess.run(started, stdout=subprocess.PIPE, stderr=None if progress else subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or "").strip() or f"foreread {arguments[0]} ended with exit code {done.returncode}"
    raise (ValueError if done.returncode == 2 else OSError)(said.removeprefix("foreread: "))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Flattens a row: a time becomes its mean or median and the ends of its interval; counts are included; lists are left out."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict) and "mean" in value:
            flat[key] = value["mean"]
            flat[f"{key}_low"], flat[f"{key}_high"] = value.get("ci95") or (None, None)
        elif isinstance(value, dict) and "median" in value:
            flat[key], flat[f"{key}_low"], flat[f"{key}_high"] = value["median"], value.get("low"), value.get("high")
        elif isinstance(value, dict) and key == "counts":
            flat.update(_flat(value))
        elif not isinstance(value, (dict, list)):
            flat[key] = value
    return flat


class Table:
    """A table of rows with the same keys. Iterating yields dicts; `report` is the complete JSON report that the rows come from.

    `to_arrow` needs pyarrow, `to_pandas` pandas, `plot` matplotlib.
    """

    def __init__(self, rows: Iterable[dict[str, Any]], report: Any = None, title: str = "") -> None:
        self.rows = [dict(row) for row in rows]
        self.report = report
        self.title = title

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(dict.fromkeys(key for row in self.rows for key in row))

    def to_arrow(self) -> Any:
        """Returns the rows as a `pyarrow.Table`."""
        import pyarrow as pa

        columns = self.columns
        return pa.table({key: [row.get(key) for row in self.rows] for key in columns})

    def to_pandas(self) -> Any:
        """Returns the rows as a `pandas.DataFrame`."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=self.columns)

    def plot(self, x: str | None = None, y: str = "time_s", ax: Any = None) -> Any:
        """Draws a bar of `y` for each row, with its 95 % interval if there is one. Returns the matplotlib axes."""
        if y not in self.columns:
            raise ValueError(f"no column {y!r}; there are {', '.join(self.columns)}")
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(7, 0.4 * len(self.rows) + 1), layout="constrained").subplots()
        name = x or next((key for key in ("policy", "name") if key in self.columns), self.columns[0])
        rows = [row for row in self.rows if row.get(y) is not None]
        names, values = [f"{row.get(name)}" for row in rows], [row[y] for row in rows]
        places = range(len(rows))
        spread = None
        if all(row.get(f"{y}_low") is not None for row in rows) and rows:
            ends = [(max(row[y] - row[f"{y}_low"], 0.0), max(row[f"{y}_high"] - row[y], 0.0)) for row in rows]
            spread = list(zip(*ends))
        ax.barh(places, values, xerr=spread, color="#4477aa", capsize=3)
        ax.set_yticks(places, names)
        ax.invert_yaxis()
        ax.set_xlabel(y)
        ax.set_title(self.title)
        return ax

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self.rows[at]

    def _shown(self) -> list[str]:
        return [key for key in self.columns if any(row.get(key) is not None for row in self.rows)]

    def __repr__(self) -> str:
        columns = self._shown()[:8]
        cells = [columns, *([_short(row.get(key)) for key in columns] for row in self.rows)]
        widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in cells]
        return "\n".join([self.title, *lines] if self.title else lines)

    def _repr_html_(self) -> str:
        columns = self._shown()
        head = "".join(f"<th>{html.escape(key)}</th>" for key in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_short(row.get(key)))}</td>" for key in columns) + "</tr>" for row in self.rows
        )
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _listed(name: str) -> Table:
    report = json.loads(command("list", name, "--json"))
    return Table(map(_flat, report[name]), report, name)


def workloads() -> Table:
    """Returns the workloads with name, summary and origin. `report` has their parameters."""
    return _listed("workloads")


def policies() -> Table:
    """Returns the readahead policies."""
    return _listed("policies")


def models() -> Table:
    """Returns the storage models."""
    return _listed("models")


def compare(
    workload: str | os.PathLike[str],
    on: str = "model:rbd",
    policies: Iterable[str] | None = None,
    runs: int | None = None,
    cache: int | str | None = None,
    seed: int = 1,
) -> Table:
    """Compares policies on a workload or a trace, like `foreread compare` (docs/guide.md). Returns a row for each policy.

    `on` is a model, a file, a device or another source. `policies` is a list such as `["none", "linux-6.18:max=1M"]`; the default is
    that of `foreread compare`. `cache` is a number of bytes or a string such as "64M". `report["best"]` names the fastest policy, or several if the
    runs show no difference between them. `report["comparisons"]` says for each pair whether it differs, is equal within 5 %, or neither.
    """
    asked = ["compare", os.fspath(workload), "--on", on, "--seed", str(seed), "--json", "-"]
    asked += [] if policies is None else ["--policy", ",".join(policies)]
    asked += [] if runs is None else ["--runs", str(runs)]
    asked += [] if cache is None else ["--memory", _size(cache)]
    report = json.loads(command(*asked))
    return Table(map(_flat, report["rows"]), report, f"{report['workload']} on {report['source']}")


def simulate(
    workload: str | os.PathLike[str],
    policy: str = "auto",
    on: str = "model:rbd",
    runs: int = 1,
    cache: int | str | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """Simulates one policy on a workload or a trace, on a model. Returns its row as a dict."""
    caches = [] if cache is None else [_size(cache)]
    cells = _cells(_arguments([os.fspath(workload)], [policy], [on], caches, runs, seed))
    if len(cells) != 1:
        raise ValueError(f"policy {policy!r}: give a single policy; compare takes several")
    return _flat(cells[0]["result"]["row"])


def explain(workload: str | os.PathLike[str], on: str = "model:rbd", policy: str | None = None) -> Table:
    """Shows what readahead did for each file of a trace. Returns a row for each file; `report` has the rules of the policy."""
    asked = ["explain", os.fspath(workload), "--on", on, "--json", "-"]
    report = json.loads(command(*asked, *([] if policy is None else ["--policy", policy])))
    return Table(map(_flat, report["files"]), report, f"{report.get('trace', workload)} on {on}")


def probe(source: str | os.PathLike[str], seconds: int = 25, output: str | os.PathLike[str] | None = None) -> Table:
    """Measures storage. Returns a row for each request size and queue depth. It only reads. `output` is a file for the fitted model,
    which you can then use as `on="model:FILE.toml"`; `report` has the model and the recommended readahead.
    """
    asked = ["probe", os.fspath(source), "--time", f"{seconds}s", "--json", "-"]
    report = json.loads(command(*asked, *([] if output is None else ["--out", os.fspath(output)])))
    return Table(map(_flat, report["points"]), report, f"probe of {os.fspath(source)}")


_TRACE_NUMBERS = ["start_ns", "end_ns", "file_size", "open", "thread", "offset", "length", "returned"]
_TRACE_TEXTS = ["file", "op", "flags", "after"]


def read_trace(path: str | os.PathLike[str], format: str | None = None) -> Any:  # noqa: A002 (as the command's)
    """Reads a trace of any known format into a `pyarrow.Table`: a row for each record, times in ns, offsets and lengths in bytes."""
    import pyarrow as pa
    from pyarrow import csv

    types = {**dict.fromkeys(_TRACE_NUMBERS, pa.int64()), **dict.fromkeys(_TRACE_TEXTS, pa.string())}
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "trace.csv")
        command("trace", "export", os.fspath(path), "--to", "csv", "--out", out, *([] if format is None else ["--from", format]))
        options = {"parse_options": csv.ParseOptions(newlines_in_values=True), "convert_options": csv.ConvertOptions(column_types=types)}
        return csv.read_csv(out, **options)


def write_trace(table: Any, path: str | os.PathLike[str], force: bool = False) -> None:
    """Writes a `pyarrow.Table` or a `pandas.DataFrame` with the columns of `read_trace` as a trace in foreread's
    format.

    The columns `offset` and `length` are required; other missing columns count as unknown. With `force` an existing file is replaced.
    """
    import pyarrow as pa
    from pyarrow import csv

    if not isinstance(table, pa.Table):
        table = pa.Table.from_pandas(table, preserve_index=False)
    for number, field in enumerate(table.schema):
        if field.name in _TRACE_NUMBERS:  # pandas turns a column with missing numbers into floats
            table = table.set_column(number, field.name, table.column(number).cast(pa.int64()))
    with tempfile.TemporaryDirectory() as folder:
        between = os.path.join(folder, "trace.csv")
        csv.write_csv(table, between)
        command("trace", "import", between, "--out", os.fspath(path), *(["--force"] if force else []))
