"""The savings ledger: what was promised of each command, what came of it, and what it cost in
moves.

Everything is read off what decisions change: a command says its prediction, its result what the
nodes that came really cost, and every move is a release and a placing that the command caused.
So the figures cannot be better than what happened, and anybody can add them up again.

A *reverted* move is one that a later command or strategy undid: a replica was moved off a node, and
later moved back to it. Replicas that return because a person scaled their workload or a node failed
do not count as reverted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never, get_args
from uuid import UUID

from wharfinger.domain.instance_types import PRICE_UNIT
from wharfinger.domain.reasons import Displacement
from wharfinger.domain.value import Value
from wharfinger.events.decisions import (
    ON_NODES,
    BindingEnd,
    DisruptionCommand,
    DisruptionResult,
    HeartbeatEnd,
    NodeClaim,
    NodeClaimResult,
    NodeRemoval,
    NodeShare,
    PlanEnd,
    ProposalEnd,
    ReplicaChange,
    SelectionEnd,
    SelectionPart,
    TimeCorrection,
    effect_of,
    kinds_about,
)
from wharfinger.events.registry import types_of
from wharfinger.events.streams import CLUSTER, cluster_stream
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerRow

HOUR_US: Micros = 3600 * 1_000_000

NOT_UPKEEP = frozenset({"", "RequirementsChanged", "ScaledDown", *get_args(Displacement)})
"""Reasons of releases that no disruption and no descheduling strategy caused."""

_TYPES = types_of(*kinds_about("command"), *ON_NODES)


@dataclass(slots=True)
class Account:
    """One command. Prices in billionths of a dollar an hour. `outcome`: empty while it goes on.
    `moved`: replicas that left its nodes for others so far. `ended`: 0 while it goes on."""

    decided: DisruptionCommand
    at: Micros
    outcome: str = ""
    reason: str = ""
    ended: Micros = 0
    removed: int = 0
    realised: int = 0
    moved: int = 0

    @property
    def predicted(self) -> int:
        return self.decided.saving

    @property
    def gap(self) -> int:
        """How far what came of it stays behind what was promised."""
        return self.predicted - self.realised if self.outcome == "done" else 0

    def saved(self, until: Micros) -> int:
        """What it has saved from its end to `until`, in billionths of a dollar, as if nothing had
        changed since."""
        if self.outcome != "done":
            return 0
        return self.realised * max(0, until - self.ended) // HOUR_US


@dataclass(frozen=True, slots=True)
class Reversal:
    """A replica that upkeep moved off `node` at `left` and onto it again at `back`; by what each
    time."""

    cluster: str
    binding: str
    ordinal: int
    node: str
    left: Micros
    left_by: str
    back: Micros
    back_by: str


@dataclass(slots=True)
class Savings:
    """Commands in the order in which they were decided. `moves`: why -> replicas that upkeep moved,
    those of commands included. `until`: as of when."""

    until: Micros
    accounts: list[Account] = field(default_factory=list)
    moves: Counter[str] = field(default_factory=Counter)
    reversals: list[Reversal] = field(default_factory=list)

    @property
    def done(self) -> list[Account]:
        return [account for account in self.accounts if account.outcome == "done"]

    @property
    def rolled_back(self) -> list[Account]:
        return [account for account in self.accounts if account.outcome == "rolled-back"]

    @property
    def predicted(self) -> int:
        return sum(account.predicted for account in self.done)

    @property
    def realised(self) -> int:
        return sum(account.realised for account in self.done)

    @property
    def saved(self) -> int:
        return sum(account.saved(self.until) for account in self.accounts)

    @property
    def moves_per_dollar(self) -> float | None:
        """Moves of commands that are done for each dollar an hour they save; None where they save
        nothing."""
        moved = sum(account.moved for account in self.done)
        return moved * PRICE_UNIT / self.realised if self.realised > 0 else None


async def savings(
    ledger: Ledger, until: Micros, cluster: str = "", since: Micros | None = None
) -> Savings:
    """Of one cluster or all of them. `since`: only what was decided from then on."""
    stream = cluster_stream(cluster) if cluster else CLUSTER
    query = DecisionQuery(stream, since=since, types=_TYPES)
    return await added_up(ledger.decisions(query), until, stream if cluster else "")


async def added_up(rows: AsyncIterator[LedgerRow], until: Micros, only: str = "") -> Savings:
    """Rows in order of time. `only`: a stream by its whole name, since a query takes prefixes."""
    book = SavingsBook(Savings(until))
    async for row in rows:
        if not only or row.stream == only:
            book.take(row.data(), row.id, row.cause, row.at)
    return book.savings


@dataclass(slots=True)
class _Left:
    node: str
    at: Micros
    by: str


@dataclass(slots=True)
class SavingsBook:
    """Adds up decisions in order of time. `by_decision`: the decision that began a command -> its
    account. `left`: replica -> the nodes that upkeep took it off, with the last time. `open`:
    replicas that upkeep has released and that are on no node again yet."""

    savings: Savings
    commands: dict[tuple[str, str], Account] = field(default_factory=dict)
    by_decision: dict[UUID, Account] = field(default_factory=dict)
    left: dict[tuple[str, str, int], dict[str, _Left]] = field(default_factory=dict)
    open: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def take(self, data: Value, id: UUID, cause: UUID | None, at: Micros) -> None:
        """One decision: its data and id, the event or decision that led to it, and its time."""
        match effect_of(data):
            case DisruptionCommand() as decided:
                self.begun(decided, id, at)
            case DisruptionResult() as ended:
                self._ended(ended, at)
            case ReplicaChange() as change:
                if change.reason not in NOT_UPKEEP:
                    self._released(change, cause, at)
                else:
                    for _, key in _replicas(change.cluster, change.binding, change.released):
                        self.open.pop(key, None)
                self._placed(change, at)
            case (
                BindingEnd()
                | HeartbeatEnd()
                | NodeRemoval()
                | NodeClaim()
                | NodeClaimResult()
                | SelectionPart()
                | SelectionEnd()
                | ProposalEnd()
                | PlanEnd()
                | TimeCorrection()
                | None
            ):
                pass  # a command says itself which nodes came and went
            case other:
                assert_never(other)

    def begun(self, decided: DisruptionCommand, id: UUID, at: Micros) -> Account:
        """Opens the account of a command. `id`: of its decision."""
        account = Account(decided, at)
        self.savings.accounts.append(account)
        self.commands[(decided.cluster, decided.command)] = self.by_decision[id] = account
        return account

    def _ended(self, ended: DisruptionResult, at: Micros) -> None:
        account = self.commands.pop((ended.cluster, ended.command), None)
        if account is not None:  # else it began before what was asked for
            account.outcome, account.reason, account.ended = ended.outcome, ended.reason, at
            account.removed, account.realised = len(ended.removed), ended.realised
            account.moved = max(account.moved, ended.moved)

    def _released(self, released: ReplicaChange, cause: UUID | None, at: Micros) -> None:
        account = self.by_decision.get(cause) if cause is not None else None
        for node, key in _replicas(released.cluster, released.binding, released.released):
            self.left.setdefault(key, {})[node] = _Left(node, at, released.reason)
            self.open[key] = released.reason
            if account is not None:
                account.moved += 1

    def _placed(self, placed: ReplicaChange, at: Micros) -> None:
        for node, key in _replicas(placed.cluster, placed.binding, placed.placed):
            by = self.open.pop(key, None)
            if by is None:
                continue
            self.savings.moves[by] += 1
            before = self.left.get(key, {}).pop(node, None)
            if before is not None:
                reversal = Reversal(
                    placed.cluster, key[1], key[2], node, before.at, before.by, at, by
                )
                self.savings.reversals.append(reversal)


def _replicas(
    cluster: str, binding: str, shares: Iterable[NodeShare]
) -> Iterator[tuple[str, tuple[str, str, int]]]:
    return (
        (share.node, (cluster, binding, ordinal)) for share in shares for ordinal in share.ordinals
    )


def by_method(accounts: Sequence[Account]) -> dict[str, list[Account]]:
    """In the order in which each was first met."""
    found: dict[str, list[Account]] = {}
    for account in accounts:
        found.setdefault(account.decided.method, []).append(account)
    return found
