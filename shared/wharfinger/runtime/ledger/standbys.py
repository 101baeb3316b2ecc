"""How standbys follow the database, and whether a failover, or a crash, can lose what was
committed."""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.runtime.ledger.database import Database

WAITS = frozenset({"on", "remote_write", "remote_apply"})
"""Values of `synchronous_commit` under which a commit waits for a synchronous standby, where there
is one."""

SYNCHRONOUS = frozenset({"sync", "quorum"})

_ATTACHED = """
select application_name, coalesce(state, ''), coalesce(sync_state, ''),
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), 0)::bigint
from pg_stat_replication order by application_name
"""


@dataclass(frozen=True, slots=True)
class Standby:
    """As in `pg_stat_replication`; `sync_state` is empty where our role may not see it. `behind`:
    bytes not yet flushed there."""

    name: str
    state: str
    sync_state: str
    behind: int


@dataclass(frozen=True, slots=True)
class Replication:
    """`commit`: `synchronous_commit` of our sessions. `names`: `synchronous_standby_names`."""

    commit: str
    names: str
    standbys: tuple[Standby, ...]

    @property
    def loses(self) -> str:
        """Why committed decisions can be lost, in a few words; empty: they cannot, as far as the
        settings say."""
        if self.commit == "off":
            return "a crash of the server loses the last commits: synchronous_commit is off"
        if not self.standbys:
            return ""
        if self.commit not in WAITS:
            return f"a failover can lose committed decisions: synchronous_commit is {self.commit}"
        if not self.names:
            return "a failover can lose committed decisions: synchronous_standby_names is empty"
        if not any(one.sync_state in SYNCHRONOUS for one in self.standbys):
            return (
                "a failover can lose committed decisions: no standby that is attached is "
                "synchronous"
            )
        return ""

    @property
    def told(self) -> str:
        """One line: the settings, and each standby."""
        settings = (
            f"synchronous_commit={self.commit}, synchronous_standby_names={self.names or 'none'}"
        )
        if not self.standbys:
            return f"none is attached; {settings}"
        each = ", ".join(
            f"{one.name or '?'} ({one.sync_state or one.state or '?'})" for one in self.standbys
        )
        return f"{each}; {settings}"


async def replication(database: Database) -> Replication:
    """Raises LedgerError. On a standby itself there is nothing to ask: it takes no writes."""
    async with database.reading() as raw:
        settings = await raw.fetchrow(
            "select current_setting('synchronous_commit'), "
            "current_setting('synchronous_standby_names')"
        )
        assert settings is not None, "a function always answers"
        attached = await raw.fetch(_ATTACHED)
    return Replication(settings[0], settings[1], tuple(Standby(*one) for one in attached))
