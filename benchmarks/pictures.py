"""Pictures of benchmarks, by matplotlib in an environment of its own, which is made on first use."""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.kernels import in_environment

PLOTS = Path(sys.prefix) / "plots"


def picture(
    path: Path,
    ylabel: str,
    panels: dict[str, list[dict[str, Any]]],
    columns: int = 1,
    xlabel: str = "rows",
) -> None:
    """Curves by the title of their panel, see plot.py; so many panels to a row."""
    listed = [{"title": title, "curves": curves} for title, curves in panels.items()]
    asked = {"path": str(path), "ylabel": ylabel, "xlabel": xlabel, "columns": columns}
    asked["panels"] = listed
    for line in in_environment(PLOTS, ["matplotlib"], "plot.py", json.dumps(asked)):
        print(line, end="")
    print(f"wrote {path}")
