"""Every target, in the order in which `make fuzz` runs them. Only the one that is asked for is
imported: a process under a fuzzer instruments what it imports, which takes long."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from tests.fuzz.target import Target


@dataclass(frozen=True, slots=True)
class Place:
    """Where a target is, and the packages whose branches guide the fuzzer: those that read."""

    module: str
    instrumented: tuple[str, ...]
    attribute: str = "TARGET"


_EVENTS = ("wharfinger.events", "wharfinger.domain.text")
_RUNTIME = "wharfinger.runtime"

PLACES = {
    # what every topic carries
    "events": Place("events", _EVENTS),
    # with keys and headers, and in parts
    "records": Place("records", (*_EVENTS, f"{_RUNTIME}.reading", f"{_RUNTIME}.dead_letters")),
    # as brokers answer them
    "batches": Place("batches", (f"{_RUNTIME}.unpacking",)),
    # what users write
    "manifests": Place("manifests", ("wharfinger.manifests", "wharfinger.events", "ruamel.yaml")),
    # what is handed to other machines
    "ledger-files": Place(
        "ledger_files", (*_EVENTS, "wharfinger.history.export_file", "wharfinger.kernel")
    ),
    # servers that are asked
    "prometheus": Place(
        "measured",
        ("wharfinger_annotator", "wharfinger.stages.annotator", "httpx._decoders"),
        "PROMETHEUS",
    ),
    "metrics-api": Place(
        "measured",
        ("wharfinger_collector.metrics_api", f"{_RUNTIME}.kube.api", "wharfinger.domain"),
        "METRICS_API",
    ),
    # what asks us
    "api": Place(
        "api_requests",
        ("wharfinger_api", "wharfinger.answers", "wharfinger.manifests", "wharfinger.events"),
    ),
}


def target_of(name: str) -> Target:
    place = PLACES[name]
    found: Target = getattr(import_module(f"tests.fuzz.{place.module}"), place.attribute)
    return found
