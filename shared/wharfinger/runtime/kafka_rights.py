"""Rights on Kafka: what each program of a plane may do with topics, groups and transactional ids.

Every service reads and describes all topics of a plane: at its start, and every 30 seconds, it
compares records with what the ledger knows of them (`runtime.incarnation_watch`). Services differ
in what they write, and in their consumer groups. The HTTP API needs no broker.

Kafka gives rights to principals, so each service that has rights of its own is a process of its own
with its own user.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wharfinger.events.streams import (
    ASSIGNMENTS,
    BINDINGS,
    CAPACITY,
    CLUSTER_STATE,
    CLUSTERS,
    DEAD_LETTERS,
    DECISIONS,
    EFFECTS,
    NODE_LOAD,
    OUTCOMES,
    POLICIES,
    PROPOSALS,
    ROOM,
    TIMELINE,
    Topic,
)

PREFIX = "wharfinger."
"""Of every topic, group and transactional id of a plane."""


@dataclass(frozen=True, slots=True)
class KafkaUser:
    """One user of the broker. `name`: of the program, and behind `wharfinger-` of the user. `reads`
    and `writes`: topics; `reads` None: all topics of the plane. `groups` and `transactional_ids`:
    the beginnings of their names."""

    name: str
    reads: tuple[Topic, ...] | None = None
    writes: tuple[Topic, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    creates: bool = False

    @property
    def user(self) -> str:
        return f"wharfinger-{self.name}"


def _groups(*services: str) -> tuple[str, ...]:
    """Behind the name of its service a group has the number of the life of the topics."""
    return tuple(f"{PREFIX}{service}." for service in services)


SUBSCRIBER = KafkaUser("subscriber", reads=(DECISIONS,), groups=("subscriber.",))

KAFKA_USERS: tuple[KafkaUser, ...] = (
    KafkaUser("migrate", creates=True),
    KafkaUser("scheduler", groups=_groups("scheduler-fleet", "scheduler-cluster")),
    KafkaUser("estimator", writes=(CAPACITY,), groups=_groups("estimator")),
    KafkaUser("descheduler", writes=(PROPOSALS,), groups=_groups("descheduler")),
    KafkaUser("annotator", writes=(NODE_LOAD,), groups=_groups("annotator")),
    # facts go to the ledger, and the publisher sends them; measured load goes to the topic
    KafkaUser("collector", writes=(NODE_LOAD,), groups=_groups("collector")),
    KafkaUser("actuator", writes=(EFFECTS,), groups=_groups("actuator")),
    KafkaUser(
        "publisher",
        writes=(
            CLUSTERS,
            CLUSTER_STATE,
            POLICIES,
            BINDINGS,
            PROPOSALS,
            ASSIGNMENTS,
            ROOM,
            OUTCOMES,
            DECISIONS,
            DEAD_LETTERS,
            TIMELINE,
        ),
        transactional_ids=(f"{PREFIX}publisher.",),
    ),
    SUBSCRIBER,
)


def acl_commands() -> Iterator[str]:
    """The calls of Kafka's `kafka-acls.sh` that give every principal its rights. The variables
    `KAFKA` (host:port of a broker) and `ADMIN_CONFIG` (a file with the properties of an
    administrator's connection) are those of the shell that runs them."""
    services = [one for one in KAFKA_USERS if one.reads is None]
    yield _add(services, ("Read", "DescribeConfigs"), "topic", (PREFIX,), prefixed=True)
    for one in KAFKA_USERS:
        if one.creates:
            yield _add([one], ("Create",), "topic", (PREFIX,), prefixed=True)
        if one.reads:
            yield _add([one], ("Read",), "topic", [topic.name for topic in one.reads])
        if one.writes:
            yield _add([one], ("Write",), "topic", [topic.name for topic in one.writes])
        if one.groups:
            yield _add([one], ("Read",), "group", one.groups, prefixed=True)
        if one.transactional_ids:
            yield _add([one], ("Write",), "transactional-id", one.transactional_ids, prefixed=True)


def _add(
    principals: Sequence[KafkaUser],
    operations: Sequence[str],
    resource: str,
    names: Sequence[str],
    *,
    prefixed: bool = False,
) -> str:
    words = [
        *(f"--allow-principal=User:{one.user}" for one in principals),
        *(f"--operation={operation}" for operation in operations),
        *(f"--{resource}={name}" for name in names),
        *(("--resource-pattern-type=prefixed",) if prefixed else ()),
    ]
    return (
        'kafka-acls.sh --bootstrap-server "$KAFKA" --command-config "$ADMIN_CONFIG" --add '
        + shlex.join(words)
    )
