"""What a contributor adds: one algorithm, one loss, one feasible set and one format, complete.

Each folder holds the new files at the places where they go in the tree; `Addition` says which one line
of which list names them, and what tests want. CONTRIBUTING.md shows it all, and
tests/test_contributing.py adds it to a copy of the tree and uses it."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Insertion:
    """Lines that are added to a file of the tree."""

    file: str
    after: str  # the line that they follow
    text: str

    def apply(self, root: Path) -> None:
        path = root / self.file
        before, found, after = path.read_text().partition(f"{self.after}\n")
        assert found, f"{self.file} has no line {self.after!r}"
        path.write_text(f"{before}{found}{self.text}\n{after}")


@dataclass(frozen=True)
class Addition:
    what: str
    listed: Insertion
    tests: tuple[Insertion, ...]
    written: tuple[str, ...]  # files that commands write anew

    @property
    def files(self) -> dict[str, Path]:
        """The new files, by where they go."""
        folder = HERE / self.what
        return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.py"))}

    def apply(self, root: Path) -> None:
        """To a tree: the files are new, and the lines are added."""
        for place, source in self.files.items():
            assert not (root / place).exists()
            (root / place).write_text(source.read_text())
        for lines in (self.listed, *self.tests):
            lines.apply(root)


FORMATS = "tests/datasets/test_formats.py"
AS_JSONL = """

def as_jsonl(table) -> bytes:
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return "\\n".join(map(json.dumps, rows)).encode()"""
ADDITIONS = (
    Addition(
        what="algorithm",
        listed=Insertion(
            file="service/planning/algorithms/__init__.py",
            after='    "adversarial_output_perturbation",',
            text='    "single_gradient_step",',
        ),
        tests=(
            Insertion(
                file="tests/audit/test_audit.py",
                after="BOTH = [  # under noise of either kind",
                text='    ("single-gradient-step", "fixed", 0, clipped(1)),',
            ),
        ),
        written=("openapi.yaml", "docs/algorithms", "docs/job-spec.md", "docs/noise.md"),
    ),
    Addition(
        what="loss",
        listed=Insertion(
            file="service/planning/losses/__init__.py",
            after='        "huber:Huber",',
            text='        "pseudo_huber:PseudoHuber",',
        ),
        tests=(
            Insertion(
                file="tests/workers/test_losses.py",
                after='    ("absolute", lambda m, y: abs(m - y), "numeric"),',
                text='    ("pseudo_huber", lambda m, y: (1 + (m - y) ** 2) ** 0.5 - 1, "numeric"),',
            ),
        ),
        written=("openapi.yaml", "docs/algorithms", "docs/job-spec.md"),
    ),
    Addition(
        what="set",
        listed=Insertion(
            file="service/planning/sets/__init__.py",
            after='        "l2_ball:L2Ball",',
            text='        "nonnegative_ball:NonnegativeBall",',
        ),
        tests=(),
        written=("openapi.yaml", "docs/algorithms", "docs/job-spec.md"),
    ),
    Addition(
        what="format",
        listed=Insertion(
            file="service/datasets/formats/__init__.py",
            after='    "csv",',
            text='    "jsonl",',
        ),
        tests=(
            Insertion(FORMATS, after="import io", text="import json"),
            Insertion(FORMATS, after="    return out.getvalue()", text=AS_JSONL),
            Insertion(FORMATS, after='    "csv": as_csv,', text='    "jsonl": as_jsonl,'),
        ),
        written=("openapi.yaml", "docs/schema.md"),
    ),
)
