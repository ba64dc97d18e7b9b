"""On PYTHONPATH: every process that Python starts has a full disk while the file beside this one that
is called `full` names where. A name in a folder that is being made, or a new file in incoming/, is
then /dev/full, whose writes fail as the kernel fails them: with ENOSPC."""

import os
import pathlib

_plan = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
_open, _mkdir = os.open, pathlib.Path.mkdir


def _where():
    try:
        return (pathlib.Path(_plan) / "full").read_text()
    except OSError:
        return ""


def mkdir(self, *args, **kwargs):
    _mkdir(self, *args, **kwargs)
    if self.suffix == ".partial" and _where().endswith((".npy", ".rows")):
        (self / _where()).symlink_to("/dev/full")


def open_(path, flags, *args, **kwargs):
    if flags & os.O_EXCL and pathlib.Path(path).parent.name == "incoming" == _where():
        os.symlink("/dev/full", path)
        flags &= ~(os.O_EXCL | os.O_CREAT)
    return _open(path, flags, *args, **kwargs)


pathlib.Path.mkdir, os.open = mkdir, open_
