"""Draws what a benchmark measured against n, log-log; run by pictures.py in an environment that has
matplotlib.

    python plot.py '{"path": "", "ylabel": "", "columns": 1, "panels": [{"title": "", "curves": []}]}'

A curve has a label, n and values, perhaps errors, and perhaps the theorem's exponent of 1/n: dashed.
One of single points says so, by "points", one without any by "plain"; and "xlabel" may say what n is
in place of rows.
"""

import json
import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter


def main():
    asked = json.loads(sys.argv[1])
    panels, columns = asked["panels"], asked["columns"]
    rows = -(-len(panels) // columns)
    size = (8, 6) if len(panels) == 1 else (3 * columns, 3 * rows)
    _, grid = plt.subplots(rows, columns, sharex=True, sharey="row", figsize=size, squeeze=False)
    for panel, axes in zip(panels, grid.flat, strict=False):
        for curve in panel["curves"]:
            n, values = curve["n"], curve["values"]
            line = axes.errorbar(
                n,
                values,
                curve.get("errors"),
                marker="" if "plain" in curve else "o",
                markersize=3 if "points" in curve else 4,
                linestyle="" if "points" in curve else "-",
                label=curve["label"],
            )
            if "exponent" in curve:
                slope = [values[0] * (each / n[0]) ** -curve["exponent"] for each in n]
                axes.plot(n, slope, "--", linewidth=1, color=line[0].get_color())
        axes.set(xscale="log", yscale="log", title=panel["title"])
        axes.title.set_fontsize(9)
        axes.xaxis.set_minor_formatter(NullFormatter())
    for row in grid:
        row[0].set_ylabel(asked["ylabel"])
    for axes in grid[-1]:
        axes.set_xlabel(asked.get("xlabel", "rows"))
    plt.tight_layout()
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.1)} if len(panels) == 1 else {}
    dashed = any("exponent" in curve for panel in panels for curve in panel["curves"])
    title = "dashed: the theorem's slope" if dashed else None
    grid[0][-1].legend(fontsize=7, title=title, title_fontsize=7, **below)
    plt.savefig(asked["path"], dpi=110, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
