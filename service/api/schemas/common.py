"""What several schemas share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$"
    ),
    Field(json_schema_extra={"pattern": r"^[^\x00-\x1f]*[^\x00-\x1f\s][^\x00-\x1f]*$"}),
]
JOBS_MAX = 50  # of a group, or of a batch of quotes
Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,64}$")]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(max_length=40)],
        Annotated[str, StringConstraints(max_length=500)],
    ],
    Field(max_length=16),
]


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
