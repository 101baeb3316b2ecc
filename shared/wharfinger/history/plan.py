"""Plans: see what a change would do before it happens, and have it happen exactly so or not at all.

A plan is made on a world that begins where the plane stands now (`states.world_at`): it is told the facts, comes to rest, and
lives on until nothing is due any more. Making one writes nothing to any stream; `save` keeps it in a table of its own.
`apply` asks each stream the plan concerns (`events.plans.PlanRequested`): the stream goes through the steps again on the state it
has in the committing round, and commits them when the outcome is what the plan expects, else refuses with what has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from wharfinger.domain.value import Value
from wharfinger.events.accepted import Accepted
from wharfinger.events.decisions import PlanRefused
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, NodeRemovalProposed, RescheduleProposed
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.errors import LedgerError

Proposed = FailoverProposed | EvictionProposed | RescheduleProposed | NodeRemovalProposed


class Move(Value, frozen=True):
    """What becomes of one binding: cluster -> replicas, and `cluster/node` -> replicas, before and after."""

    binding: str
    before: dict[str, int]
    after: dict[str, int]
    nodes_before: dict[str, int] = {}
    nodes_after: dict[str, int] = {}


class Refusal(Value, frozen=True):
    """A binding that would not get all it asks for: `missing` replicas, for `reason`. `before`: it lacked them already."""

    binding: str
    reason: str
    missing: int
    before: bool = False


class Use(Value, frozen=True):
    """Of one cluster: cpu asked for by what lies there and cpu there is, in milli-cores; nodes in use and what they would cost an
    hour, in thousandths, None where no price is known."""

    cluster: str
    cpu_milli: int
    cpu_milli_max: int
    replicas: int
    nodes: int
    nodes_max: int
    node_cpu_milli: int
    price_milli: int | None = None


class Figures(Value, frozen=True):
    """`spread`: thousandths between the fullest and the emptiest cluster."""

    clusters: tuple[Use, ...]
    spread: int
    node_cpu_milli: int
    price_milli: int | None
    unplaced: int


class Plan(Value, frozen=True):
    """`facts`: what is handed in once the streams have committed. `parts`: what each stream is asked. `horizon_us`: how far ahead
    the plan looked. `declined`: proposals that would be refused, `target: reason (detail)`."""

    id: UUID
    made_at: Micros
    facts: tuple[Value, ...]
    parts: tuple[PlanRequested, ...]
    moves: tuple[Move, ...]
    refusals: tuple[Refusal, ...]
    before: Figures
    after: Figures
    horizon_us: Micros = 0
    declined: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.moves or self.refusals)


@dataclass(frozen=True, slots=True)
class Applied:
    """Every stream committed its part. `decisions`: ids of the `PlanCommitted`, by stream. `again`: it had happened before."""

    plan: UUID
    decisions: dict[str, UUID]
    again: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """At least one stream refused. `committed`: streams that had committed their own part."""

    plan: UUID
    refusals: dict[str, PlanRefused]
    committed: tuple[str, ...]


async def make_plan(
    ledger: Ledger, facts: Sequence[Accepted], proposals: Sequence[Proposed] = (), at: Micros = 0
) -> Plan:
    """What `facts` and `proposals` would do to the plane as it is now. LedgerError: it cannot be planned, in one line."""
    raise LedgerError("plans are not made yet")


async def save(ledger: Ledger, plan: Plan) -> None:
    """Keep the plan, so that it can be carried out by its id. The same one twice is one."""
    raise LedgerError("plans are not kept yet")


async def load(ledger: Ledger, id: UUID) -> Plan:
    """LedgerError: there is none of this id."""
    raise LedgerError(f"there is no plan {id}")


async def apply(ledger: Ledger, plan: Plan, timeout_s: float) -> Applied | Refused:
    """Ask the streams, wait for their answers, and hand in the facts. Interrupted and called again it finishes."""
    raise LedgerError("plans are not carried out yet")
