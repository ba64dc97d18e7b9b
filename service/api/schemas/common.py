"""What several schemas share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from service.planning.spec import JobSpec

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


class SpecRequest(JobSpec):
    """A spec as it is sent, with metadata or without: what can be submitted can be quoted."""

    metadata: Metadata = Field(default_factory=dict, description="Of your own; not read.")

    def spec(self) -> JobSpec:
        own = set(type(self).model_fields) - set(JobSpec.model_fields)
        return JobSpec.model_validate(self.model_dump(exclude=own))


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
