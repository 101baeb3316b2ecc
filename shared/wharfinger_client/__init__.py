"""Wharfinger for other programs: its HTTP API, typed, and a consumer of its events.

    from wharfinger_client import AsyncClient, Client, api

Needs httpx; `asyncpg` for cursors in PostgreSQL and `aiokafka` for events from Kafka.
"""

from wharfinger_client.client import NO_RETRIES as NO_RETRIES
from wharfinger_client.client import AsyncClient as AsyncClient
from wharfinger_client.client import Client as Client
from wharfinger_client.client import Retries as Retries
from wharfinger_client.consumer import Batch as Batch
from wharfinger_client.consumer import Consumer as Consumer
from wharfinger_client.cursors import PostgresCursors as PostgresCursors
from wharfinger_client.cursors import SqliteCursors as SqliteCursors
from wharfinger_client.errors import ApiError as ApiError
from wharfinger_client.errors import ConsumerError as ConsumerError
from wharfinger_client.errors import GapError as GapError
from wharfinger_client.errors import NotFoundError as NotFoundError
from wharfinger_client.errors import RewindError as RewindError
from wharfinger_client.errors import UnavailableError as UnavailableError
from wharfinger_client.errors import UnreachableError as UnreachableError
from wharfinger_client.errors import WharfingerError as WharfingerError
from wharfinger_client.events import Event as Event
from wharfinger_client.events import EventFilter as EventFilter
from wharfinger_client.sources import Kafka as Kafka
from wharfinger_client.sources import Pull as Pull
from wharfinger_client.sources import Sse as Sse
from wharfinger_client.watching import Change as Change
from wharfinger_client.watching import Watch as Watch

__version__ = "0.6.0"
