"""The only code that sees data.

numba keeps a compiled function by the source of the file in which it stands, and does not notice that
one which it inlines has changed in another. A stale kernel would be code that nobody reviewed, so the
cache of compiled kernels is named after all sources of this package together.
"""

import hashlib
import os
from pathlib import Path

from numba.core import config

_HERE = Path(__file__).parent


def sources_digest(folder: Path = _HERE) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_root() -> Path:
    if config.CACHE_DIR:  # type: ignore[attr-defined]
        return Path(config.CACHE_DIR)  # type: ignore[attr-defined]
    if os.access(_HERE, os.W_OK):
        return _HERE / "__pycache__"
    return Path.home() / ".cache" / "epsilond"


config.CACHE_DIR = str(_cache_root() / f"kernels-{sources_digest()}")  # type: ignore[attr-defined]
