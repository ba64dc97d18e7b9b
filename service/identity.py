"""The database, the data folder and the master key belong together: the service refuses to start if
one of them was swapped.

With another key, data uploaded again would not be recognised and could get a second budget. With
another database, folders that no row names would look like leftovers and be deleted.
"""

import secrets

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from service.config import Settings
from service.db import Database
from service.keys import read_or_create
from service.tables import identity


class WrongIdentityError(RuntimeError):
    """The database, the data folder and the master key do not belong together."""


def check_identity(db: Database, settings: Settings) -> None:
    """Tie the three together on the first start; compare them on every later one."""
    ours = {
        "service": read_or_create(settings.data_dir / "service.id", secrets.token_hex(16)),
        "master_key": settings.keys.derive("check").hex(),
    }
    try:
        with db.write() as connection:
            known = {row.name: row.value for row in connection.execute(select(identity))}
            if not known:
                rows = [{"name": name, "value": value} for name, value in ours.items()]
                connection.execute(insert(identity), rows)
                return
    except IntegrityError:  # another process was first
        return check_identity(db, settings)
    if known["master_key"] != ours["master_key"]:
        raise WrongIdentityError(
            "this database was made with another EPSILOND_MASTER_KEY; start with that one."
        )
    if known["service"] != ours["service"]:
        raise WrongIdentityError(
            f"{settings.data_dir} is the data folder of another database; EPSILOND_DATA_DIR and "
            "EPSILOND_DATABASE_URL must belong together."
        )
