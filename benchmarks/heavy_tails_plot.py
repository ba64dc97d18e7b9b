"""Draws what heavy_tails.py measured; run by it in an environment that has matplotlib.

python heavy_tails_plot.py '{"curves": [...], "path": "..."}'
"""

import json
import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

MARKS = {"moment": "o-", "private": "s-", "Lipschitz": "x:"}


def main():
    asked = json.loads(sys.argv[1])
    curves = asked["curves"]
    losses = list(dict.fromkeys(c["loss"] for c in curves))
    tails = list(dict.fromkeys(c["tail"] for c in curves))
    _, grid = plt.subplots(
        len(losses),
        len(tails),
        sharex=True,
        sharey="row",
        figsize=(3 * len(tails), 3 * len(losses)),
    )
    for c in curves:
        axes = grid[losses.index(c["loss"])][tails.index(c["tail"])]
        axes.loglog(c["n"], c["risk"], MARKS[c["clip"]], label=f"clip: {c['clip']}", markersize=4)
        if c["clip"] == "moment":
            first, size = c["risk"][0], c["n"]
            line = [1.5 * first * (n / size[0]) ** -c["theory"] for n in size]
            axes.loglog(size, line, "k--", linewidth=1, label="the theorem's slope")
            axes.set_title(f"{c['loss']}, {c['tail']}", fontsize=9)
    for row in grid:
        row[0].set_ylabel("excess risk")
    for axes in grid[-1]:
        axes.set_xlabel("rows")
    for axes in grid.flat:
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_visible(bool(axes.lines))
    grid[0][-1].legend(fontsize=7)
    plt.tight_layout()
    plt.savefig(asked["path"], dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
