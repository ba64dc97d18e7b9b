"""Every table. Times are milliseconds since 1970; privacy amounts are int64 pico-units."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from service.jobs.states import JOB_STATES

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ROLES = ("admin", "owner", "analyst", "auditor")
ENTRY_KINDS = ("open", "reserve", "post", "void", "top_up", "freeze", "unfreeze")


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(map(repr, values))})", name=f"{column}_known")


principals = Table(
    "principals",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    _one_of("role", ROLES),
)

# A key ends with the key that it was minted by, unless it `outlives` that.
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("principal_id", ForeignKey("principals.id"), nullable=False, index=True),
    Column("prefix", String(16), nullable=False, unique=True),
    Column("hash", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    Column("minted_by", ForeignKey("api_keys.id"), index=True),
    Column("outlives", Boolean, nullable=False, default=False, server_default=false()),
)

# A signed-in browser. It lasts while its key does, until `expires_ms` (moved on by use) and never past
# `ends_ms`; only the hash of its token is here.
sessions = Table(
    "sessions",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("key_id", ForeignKey("api_keys.id"), nullable=False, index=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("ends_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
)

# What ties this database to its data folder and its master key; see service/identity.py.
identity = Table(
    "identity",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", String(64), nullable=False),
)

# The people whose records these are. Every dataset of a lineage spends from its one account.
lineages = Table(
    "lineages",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("owner_id", ForeignKey("principals.id"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

datasets = Table(
    "datasets",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("owner_id", ForeignKey("principals.id"), nullable=False, index=True),
    Column("lineage_id", ForeignKey("lineages.id"), index=True),
    Column("name", String(200), nullable=False),
    Column("state", String(16), nullable=False),
    Column("schema", Text, nullable=False),
    Column("facts", Text),
    Column("folder", String(80)),
    Column("content_mac", String(64), index=True),
    Column("chain_length", BigInteger, nullable=False, default=0),
    Column("chain_head", String(64)),
    Column("shared_ledger", Boolean, nullable=False, default=False, server_default=false()),
    Column("created_ms", BigInteger, nullable=False),
    _one_of("state", ("empty", "ready", "deleted")),
)

grants = Table(
    "grants",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("principal_id", ForeignKey("principals.id"), primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)

# The running balances are at the ceiling's terms and exist only under the row's lock; `ledger check`
# derives them again from the entries. `spent` sums up, by terms, what was posted. The database itself
# refuses an overspent account.
accounts = Table(
    "accounts",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("lineage_id", ForeignKey("lineages.id"), nullable=False, unique=True),
    Column("terms", Text, nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("ceiling_units", BigInteger, nullable=False),
    Column("posted_units", BigInteger, nullable=False, default=0),
    Column("pending_units", BigInteger, nullable=False, default=0),
    Column("spent", Text, nullable=False, default="{}"),
    Column("entries", BigInteger, nullable=False, default=0),
    Column("frozen", Boolean, nullable=False, default=False, server_default=false()),
    Column("created_ms", BigInteger, nullable=False),
    CheckConstraint("posted_units >= 0 AND pending_units >= 0", name="not_negative"),
    CheckConstraint("posted_units + pending_units <= ceiling_units", name="within_ceiling"),
    CheckConstraint("ceiling_units > 0", name="positive"),
)

# Caps (no principal) and analysts' shares, each at terms of its own; see service/ledger/limits.py. One
# is in force from the account's entry `since_seq` on, until it is closed at `until_seq`.
limits = Table(
    "limits",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("principal_id", ForeignKey("principals.id")),
    Column("terms", Text, nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("posted_units", BigInteger, nullable=False),
    Column("pending_units", BigInteger, nullable=False),
    Column("in_advance", Boolean, nullable=False),
    Column("overdrawn", Boolean, nullable=False, default=False, server_default=false()),
    Column("since_seq", BigInteger, nullable=False),
    Column("until_seq", BigInteger),
    Column("created_ms", BigInteger, nullable=False),
    CheckConstraint("posted_units >= 0 AND pending_units >= 0", name="not_negative"),
    CheckConstraint("overdrawn OR posted_units + pending_units <= units", name="within_units"),
    Index(
        "uq_limits_cap",
        "account_id",
        unique=True,
        sqlite_where=text("until_seq IS NULL AND principal_id IS NULL"),
        postgresql_where=text("until_seq IS NULL AND principal_id IS NULL"),
    ),
    Index(
        "uq_limits_share",
        "account_id",
        "principal_id",
        unique=True,
        sqlite_where=text("until_seq IS NULL"),
        postgresql_where=text("until_seq IS NULL"),
    ),
)

# Append-only (triggers refuse UPDATE and DELETE). `post` and `void` resolve a `reserve`, at most
# once: resolves_seq is unique. `units` are at the ceiling's terms, `epsilon` is what was asked, and
# `costs` has a reservation's units at every terms that they were priced at.
entries = Table(
    "entries",
    metadata,
    Column("account_id", ForeignKey("accounts.id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("epsilon", Double),
    Column("costs", Text),
    Column("resolves_seq", BigInteger),
    Column("principal_id", ForeignKey("principals.id")),
    Column("dataset_id", ForeignKey("datasets.id")),
    Column("job_id", String(40), index=True),
    Column("reason", String(200), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("account_id", "resolves_seq"),
    ForeignKeyConstraint(
        ["account_id", "resolves_seq"], ["entries.account_id", "entries.seq"], name="resolves"
    ),
    _one_of("kind", ENTRY_KINDS),
    CheckConstraint("units >= 0", name="not_negative"),
    CheckConstraint("(kind IN ('post', 'void')) = (resolves_seq IS NOT NULL)", name="resolution"),
)

# A queued job is due from `hint_ms` on, and the one that has been due longest is claimed first.
# `fence` counts its starts, `attempts` those of them that failed by themselves.
jobs = Table(
    "jobs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("dataset_id", ForeignKey("datasets.id"), nullable=False),
    Column("principal_id", ForeignKey("principals.id"), nullable=False),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("group_id", String(40), index=True),  # of jobs that were reserved together
    Column("entry_seq", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("spec", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("plan_digest", String(64), nullable=False),
    Column("choice", Text),  # why `auto` took this algorithm, and the runners-up
    Column("metadata", Text, nullable=False),
    Column("wrapped_key", LargeBinary),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("lease_ms", BigInteger),
    Column("opened_ms", BigInteger),
    Column("hint_ms", BigInteger),
    Column("steps_done", BigInteger, nullable=False, default=0),
    Column("steps_total", BigInteger, nullable=False),
    Column("error", String(40)),
    Column("events", Integer, nullable=False, default=0),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    _one_of("state", JOB_STATES),
    Index("ix_jobs_due", "state", "hint_ms"),
    Index("ix_jobs_principal", "principal_id", "created_ms", "id"),
    Index("ix_jobs_dataset", "dataset_id", "created_ms", "id"),
)

job_events = Table(
    "job_events",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("type", String(40), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

# The change feed behind event streams: one row per job event and per ledger entry. A row gets its
# position after it was committed; see service/changes.py.
changes = Table(
    "changes",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("position", BigInteger, unique=True),
    Column("job_id", ForeignKey("jobs.id")),
    Column("account_id", ForeignKey("accounts.id")),
    Column("number", BigInteger, nullable=False),
    Column("type", String(40), nullable=False),
    Column("created_ms", BigInteger, nullable=False, index=True),
    CheckConstraint("(job_id IS NULL) <> (account_id IS NULL)", name="of_one_thing"),
    Index(
        "ix_changes_unplaced",
        "id",
        sqlite_where=text("position IS NULL"),
        postgresql_where=text("position IS NULL"),
    ),
)

models = Table(
    "models",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("card", Text, nullable=False),
    Column("digest", String(64), nullable=False),
)

audit_records = Table(
    "audit_records",
    metadata,
    Column("dataset_id", ForeignKey("datasets.id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, unique=True),
    Column("body", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("signature", String(128), nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("principal_id", ForeignKey("principals.id"), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("response", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False, index=True),
)

# The same for all else that changes something; wrapped by the master key. See service/api/once.py.
answers = Table(
    "answers",
    metadata,
    Column("principal_id", ForeignKey("principals.id"), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False, index=True),
)

# Every api and worker process, by the heartbeats of its maintenance loop.
processes = Table(
    "processes",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("host", String(200), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
)
