"""The catalog of algorithms."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class AlgorithmView(BaseModel):
    object: Literal["algorithm"] = "algorithm"
    name: str
    title: str
    paper: str
    algorithm: str
    theorem: str
    problem: str
    needs: list[str]
    cost: str
    parameters: dict[str, Any]
    example: dict[str, Any] = Field(description="The rest of a job that it takes.")
