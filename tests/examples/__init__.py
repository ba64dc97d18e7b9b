"""What a contributor adds: one algorithm, one loss, one feasible set and one format, complete.

Each folder holds the new files at the places where they go in the tree; `Addition` says which one line
of which list names them. CONTRIBUTING.md shows these files, and tests/test_contributing.py adds all of
them to a copy of the tree and uses them."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Addition:
    what: str
    list_file: str
    after: str  # the line of the list that the new one follows
    line: str
    written: tuple[str, ...]  # files that a command writes anew
    tests: str  # rows of tests, besides those that follow from the list

    @property
    def files(self) -> dict[str, Path]:
        """The new files, by where they go."""
        folder = HERE / self.what
        return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.py"))}

    def apply(self, root: Path) -> None:
        """To a tree: the files are new, and the line is added."""
        for place, source in self.files.items():
            assert not (root / place).exists()
            (root / place).write_text(source.read_text())
        listed = root / self.list_file
        before, found, after = listed.read_text().partition(f"{self.after}\n")
        assert found, f"{self.list_file} has no line {self.after!r}"
        listed.write_text(before + found + f"{self.line}\n" + after)


ADDITIONS = (
    Addition(
        what="algorithm",
        list_file="service/planning/algorithms/__init__.py",
        after='    "adversarial_output_perturbation",',
        line='    "single_gradient_step",',
        written=("openapi.yaml", "docs/algorithms", "docs/job-spec.md", "docs/noise.md"),
        tests="1, in tests/audit/test_audit.py",
    ),
    Addition(
        what="loss",
        list_file="service/planning/losses/__init__.py",
        after='        "huber:Huber",',
        line='        "pseudo_huber:PseudoHuber",',
        written=("openapi.yaml", "docs/algorithms", "docs/job-spec.md"),
        tests="1, in tests/workers/test_losses.py",
    ),
    Addition(
        what="set",
        list_file="service/planning/sets/__init__.py",
        after='        "l2_ball:L2Ball",',
        line='        "nonnegative_ball:NonnegativeBall",',
        written=("openapi.yaml", "docs/algorithms", "docs/job-spec.md"),
        tests="none",
    ),
    Addition(
        what="format",
        list_file="service/datasets/formats/__init__.py",
        after='    "csv",',
        line='    "jsonl",',
        written=("openapi.yaml", "docs/schema.md"),
        tests="1, in tests/datasets/test_formats.py",
    ),
)
