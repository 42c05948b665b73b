"""PostgreSQL's roles for the schema, one for each kind of user (docs/security.md).

`owner` owns everything and serves migrations only; `engine` is for workers, beat and operators' commands; `client` for
applications that fire triggers; `auditor` only reads. All are groups that logins are made members of.
"""

from psycopg.sql import Identifier
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from interlock.db.schema import AUDITOR, CLIENT, ENGINE, OWNER, ROLES
from interlock.db.statements import queries
from interlock.workflows.errors import NotYours, Refused

sql = queries(__file__)


class RolesMissing(Refused):
    """The roles do not exist, and this login may not create them. Let a DBA do it; nothing was changed."""


def script(database: str, login: str) -> str:
    """The SQL with which a DBA prepares a database for a login that may not create roles.

    Args:
        database: the database's name.
        login: the login that will run `interlock migrate`.
    """
    created = sql("create")
    return (
        f"{created.strip()}\n"
        f"GRANT CREATE ON DATABASE {_quoted(database)} TO {OWNER};\n"
        f"GRANT {OWNER} TO {_quoted(login)};   -- the login that runs `interlock migrate`\n"
        f"GRANT {ENGINE} TO {_quoted(login)};  -- the login of the workers: better another one than that\n"
        f"-- For each application:  GRANT {CLIENT} TO …;    for who only reads:  GRANT {AUDITOR} TO …;"
    )


def become_owner(connection: Connection) -> None:
    """Act as the schema's owner until `RESET ROLE`; missing roles are created first.

    Raises:
        RolesMissing: a role is missing, or the login is not the owner's member, and it may not change that.
    """
    who = connection.execute(
        text(
            "SELECT current_user AS login, current_database() AS database, rolsuper OR rolcreaterole AS may_create"
            " FROM pg_roles WHERE rolname = current_user"
        )
    ).one()
    known = set(connection.execute(text("SELECT rolname FROM pg_roles")).scalars())
    missing = [each for each in ROLES if each not in known]
    if missing and not who.may_create:
        raise _unprepared(who.login, f"roles are missing: {', '.join(missing)}")
    if missing:
        connection.exec_driver_sql(sql("create"), execution_options={"no_parameters": True})
    if missing or not _has(connection, "pg_has_role(:owner, 'MEMBER')"):
        try:
            with connection.begin_nested():  # whoever creates them may also run workers
                connection.execute(text(f"GRANT {OWNER}{f', {ENGINE}' * bool(missing)} TO CURRENT_USER"))
        except (DBAPIError, NotYours) as refused:
            raise _unprepared(who.login, f"{who.login} is not a member of {OWNER}") from refused
    if not _has(connection, "has_database_privilege(:owner, current_database(), 'CREATE')"):
        connection.execute(text(f"GRANT CREATE ON DATABASE {_quoted(who.database)} TO {OWNER}"))
    connection.execute(text(f"SET ROLE {OWNER}"))


def grant(connection: Connection) -> None:
    """Grant each role what it may do, and nothing else. The connection must act as the owner."""
    connection.exec_driver_sql(sql("grants"), execution_options={"no_parameters": True})


def _has(connection: Connection, expression: str) -> bool:
    return bool(connection.execute(text(f"SELECT {expression}"), {"owner": OWNER}).scalar_one())


def _quoted(name: str) -> str:
    return Identifier(name).as_string(None)


def _unprepared(login: str, why: str) -> RolesMissing:
    return RolesMissing(
        f"{why}, and {login} may not change that. Let a DBA run what `interlock migrate --print-roles` prints"
    )
