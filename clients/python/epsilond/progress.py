"""A bar while a job runs: in a terminal or a notebook, and nowhere else."""

import sys
from html import escape
from types import TracebackType
from typing import Any, Self

from epsilond.results import Job

WIDTH = 30


def words(job: Job) -> str:
    done, total = job.progress["steps_done"], job.progress["steps_total"]
    return f"{job.id} {job.state}, step {done} of {total}"


def share(job: Job) -> float:
    done, total = job.progress["steps_done"], job.progress["steps_total"]
    return 1.0 if job.state == "succeeded" else done / total if total else 0.0


def bar(job: Job) -> str:
    filled = round(share(job) * WIDTH)
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {words(job)}"


def html_bar(job: Job) -> str:
    return f'<progress value="{share(job):.4f}" max="1"></progress> {escape(words(job))}'


class Watch:
    """Shows a job whenever it has changed. `wanted` None: where somebody is looking."""

    def __init__(self, wanted: bool | None, stream: Any = None, shell: Any = None) -> None:
        self._stream = stream or sys.stderr
        shell = shell or getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        notebook = type(shell).__name__ == "ZMQInteractiveShell"
        self._kind = "notebook" if notebook else "terminal"
        self._wanted = wanted if wanted is not None else notebook or self._stream.isatty()
        self._handle: Any = None
        self._line = ""

    def show(self, job: Job) -> None:
        if not self._wanted:
            return
        if self._kind == "notebook":
            self._display(html_bar(job))
            return
        line = bar(job)
        self._stream.write("\r" + line.ljust(len(self._line)))
        self._stream.flush()
        self._line = line

    def _display(self, html: str) -> None:
        from IPython.display import HTML, display  # noqa: PLC0415 - it is there in a notebook

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._line:
            self._stream.write("\n")
            self._stream.flush()
