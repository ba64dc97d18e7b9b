"""Settings: every one an EPSILOND_* environment variable, all with an embedded default."""

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.keys import Keys


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="EPSILOND_", extra="ignore")

    data_dir: Path = Path("data")
    database_url: str | None = Field(default=None, description="Default: SQLite in data_dir.")
    database_seconds: PositiveFloat = Field(
        default=5.0, description="How long a statement, a lock or an answer of it is waited for."
    )
    engine: Literal["embedded", "celery"] = "embedded"
    broker_url: str = "redis://127.0.0.1:6379/0"
    broker_prefix: str = Field(default="epsilond:", description="Of every Redis key we use.")
    workers: PositiveInt = Field(default=1, description="Worker processes of the embedded engine.")

    master_key: str | None = Field(default=None, description="64 hex digits; default: a file.")
    signing_key: str | None = Field(default=None, description="64 hex digits; default: a file.")

    lease_seconds: PositiveFloat = 15.0
    loop_seconds: PositiveFloat = 1.0
    attempts_max: PositiveInt = Field(
        default=5, description="Runs of one job that may fail by themselves."
    )
    starts_max: PositiveInt = Field(
        default=50, description="Starts of one job, whatever ended them; each waits longer."
    )
    job_seconds_max: PositiveInt = 6 * 3600
    gradients_max: PositiveInt = Field(
        default=10**12, description="Plans that evaluate more per-record gradients are refused."
    )

    session_seconds: PositiveFloat = Field(
        default=8 * 3600.0,
        description="A signed-in browser that is silent this long is signed out.",
    )
    session_seconds_max: PositiveFloat = Field(
        default=7 * 24 * 3600.0, description="So is one that signed in this long ago."
    )
    streams_max: PositiveInt = Field(
        default=1000, description="Event streams and waiting requests of one process."
    )
    streams_max_each: PositiveInt = Field(
        default=200, description="How many of them may be one principal's."
    )

    upload_bytes_max: PositiveInt = 20 * 2**30
    body_bytes_max: PositiveInt = 2**20
    rows_max: PositiveInt = 10**9
    ingest_memory_bytes: PositiveInt = 4 * 2**30
    ingest_cpu_seconds: PositiveInt = 3600

    @field_validator("database_url")
    @classmethod
    def _is_of_a_known_database(cls, url: str | None) -> str | None:
        from sqlalchemy import exc, make_url  # noqa: PLC0415 - commands that ask a service need none

        advice = "write postgresql://user:password@host/name (not postgres://), or sqlite:////file"
        try:
            known = url is None or make_url(url).get_backend_name() in ("sqlite", "postgresql")
        except (ValueError, exc.ArgumentError):  # a port that is no number; no URL at all
            known = False
        if not known:
            raise ValueError(advice)
        return url

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir.resolve()}/epsilond.db"

    @cached_property
    def keys(self) -> Keys:
        return Keys.load(self.data_dir / "keys", self.master_key, self.signing_key)
