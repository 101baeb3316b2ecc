"""The embedded default: broker and database of one data directory, started together.

`up` and the tests start these when the settings name no broker or no database. The broker loses its
records on restart, the database does not; the plane recovers from the database. The supervisor
watches both and restarts them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from wharfinger.runtime.backends import CAPABILITIES, Backend, BrokerProfile
from wharfinger.runtime.embedded_broker import EmbeddedBroker
from wharfinger.runtime.embedded_postgres import EmbeddedPostgres

BROKER_PROFILE: BrokerProfile = "memory"


@dataclass(frozen=True, slots=True)
class Embedded:
    """Both servers of a data directory. Blocking, like its parts."""

    broker: EmbeddedBroker
    postgres: EmbeddedPostgres

    @classmethod
    def under(cls, data_dir: Path, *, die_with_parent: bool = False) -> Embedded:
        return cls(
            EmbeddedBroker(data_dir, die_with_parent=die_with_parent),
            EmbeddedPostgres(data_dir, die_with_parent=die_with_parent),
        )

    def start(self) -> Backend:
        """Starts both or neither: when one cannot start, the other is stopped before the error is
        raised."""
        try:
            self.broker.start()
            self.postgres.start()
        except BaseException:
            self.stop()
            raise
        return self.backend()

    def backend(self) -> Backend:
        """The two as services see them. Call it again after a restart of the broker: the boot id
        has changed then."""
        return Backend(
            bootstrap=self.broker.bootstrap,
            database_url=self.postgres.url,
            capabilities=CAPABILITIES[BROKER_PROFILE],
            boot_id=self.broker.boot_id,
        )

    def stop(self) -> None:
        with ThreadPoolExecutor(max_workers=2) as pool:
            for stopping in [pool.submit(self.broker.stop), pool.submit(self.postgres.stop)]:
                stopping.result()
