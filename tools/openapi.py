"""Write openapi.yaml from the application; `--check` only says whether it is current."""

import sys
from pathlib import Path

import yaml

from service.app import create_app
from service.config import Settings

PATH = Path(__file__).resolve().parent.parent / "openapi.yaml"


def document() -> str:
    return yaml.safe_dump(create_app(Settings()).openapi(), sort_keys=False, allow_unicode=True)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PATH.read_text() == document() else "openapi.yaml is stale: make openapi")
    PATH.write_text(document())
