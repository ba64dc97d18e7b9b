"""The catalog of algorithms."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class TakesView(BaseModel):
    """What may stand in a job: kinds of loss, set, model and regulariser, rows and labels."""

    losses: list[str]
    sets: list[str]
    models: list[str]
    regularisers: list[str]
    rows: str = Field(description="bounded: every column needs bounds. any: clipping bounds rows.")
    labels: list[str]


class AlgorithmView(BaseModel):
    object: Literal["algorithm"] = "algorithm"
    name: str
    title: str
    paper: str
    algorithm: str
    theorem: str
    problem: str
    needs: list[str]
    takes: TakesView
    cost: str
    parameters: dict[str, Any]
    example: dict[str, Any] = Field(description="The rest of a job that it takes.")
