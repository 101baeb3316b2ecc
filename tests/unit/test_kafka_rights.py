"""The table of rights on Kafka beside the tables of services and topics."""

from __future__ import annotations

import shlex

from wharfinger.events.streams import TOPICS
from wharfinger.runtime.children import API, CONTROLLERS, MODULES, ONE
from wharfinger.runtime.kafka_rights import KAFKA_USERS, acl_commands
from wharfinger_publisher.reaccept import ACCEPTED

BY_NAME = {one.name: one for one in KAFKA_USERS}
THROUGH_THE_INTAKE = {"intake", "operators", "replay"}
"""Writers whose events go to the ledger first: the publisher sends them."""


def test_every_service_that_uses_the_broker_has_a_user() -> None:
    assert MODULES.keys() - {ONE, CONTROLLERS, API} <= BY_NAME.keys()


def test_every_topic_is_written_by_those_that_the_table_of_topics_names() -> None:
    for topic in TOPICS:
        named = {"publisher" if one in THROUGH_THE_INTAKE else one for one in topic.written_by}
        # collectors say facts to the ledger, and measured load on its topic
        if "collectors" in named:
            named = named - {"collectors"} | {"collector" if "annotator" in named else "publisher"}
        assert {one.name for one in KAFKA_USERS if topic in one.writes} == named, topic.name


def test_what_is_accepted_from_outside_is_sent_by_the_publisher() -> None:
    assert set(ACCEPTED) <= set(BY_NAME["publisher"].writes)


def test_every_right_is_in_a_command() -> None:
    words = {word for command in acl_commands() for word in shlex.split(command)}
    for one in KAFKA_USERS:
        assert f"--allow-principal=User:{one.user}" in words
        assert {f"--topic={topic.name}" for topic in (*one.writes, *(one.reads or ()))} <= words
        assert {f"--group={group}" for group in one.groups} <= words
        assert {f"--transactional-id={name}" for name in one.transactional_ids} <= words
