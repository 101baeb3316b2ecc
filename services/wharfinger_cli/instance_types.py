"""`import instance-types`: a catalogue of instance types, submitted to the plane in parts that each
fit into one message.

The parts of a catalogue are policies of the kind `InstanceTypes`; their namespace is the name of
the catalogue. Importing a file again submits only what has changed, and removes the parts that a
shorter file no longer has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from wharfinger.answers.submit import Submitted, submit
from wharfinger.domain.instance_types import Catalogue, InstanceType
from wharfinger.domain.policy import Policy
from wharfinger.domain.quantities import QuantityError, parse_milli, parse_units
from wharfinger.domain.value import canonical
from wharfinger.events.accepted import Accepted, accepted
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.manifests.model import is_name
from wharfinger_cli.bulk import require_plane, said
from wharfinger_cli.catalogue_files import read
from wharfinger_cli.catalogue_terms import CatalogueTerms, Read
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import LatestFacts, known_facts
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import WARN, Plain, count, messages
from wharfinger_cli.request import Request
from wharfinger_cli.waiting import Wait, show_and_wait

KIND = "InstanceTypes"
PART_BYTES = 800_000
"""Of types in one message; brokers refuse those of more than a million bytes."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """As they were written behind the command."""

    name: str = "default"
    form: str = "auto"
    region: str = ""
    zones: str = ""
    spot_factor: str = ""
    overhead: str = ""
    pods: int = 0
    remove: str = ""


def import_instance_types(
    request: Request, files: Sequence[Path], options: ImportOptions, wait: Wait | None = None
) -> None:
    if options.remove:
        if files:
            raise CommandError("import instance-types: expected files or --remove NAME, got both")
        _tell(request, options.remove, None, wait)
        return
    if not files:
        raise CommandError("import instance-types: expected at least one file, or --remove NAME")
    if not is_name(options.name):
        raise CommandError(
            f"--name: expected lower-case letters, digits, '-' and '.', got {options.name[:40]!r}"
        )
    require_plane(request)  # before the files are read
    found = read(files, options.form, asked(options))
    for remark in found.remarks:
        messages().print(remark, style=WARN, soft_wrap=True, markup=False)
    _tell(request, options.name, found, wait)


def asked(options: ImportOptions) -> CatalogueTerms:
    """CommandError: an option that says nothing sensible."""
    zones = (
        tuple(dict.fromkeys(zone.strip() for zone in options.zones.split(",")))
        if options.zones
        else ()
    )
    if not all(zones):
        raise CommandError(
            f"--zones: expected names separated by commas such as 'a,b', got {options.zones[:40]!r}"
        )
    return CatalogueTerms(
        options.region,
        zones,
        _factor(options.spot_factor),
        _amounts(options.overhead),
        options.pods,
    )


def _factor(text: str) -> Decimal | None:
    if not text:
        return None
    try:
        factor = Decimal(text)
    except InvalidOperation:
        factor = Decimal(-1)
    if not factor.is_finite() or not 0 < factor <= 1:
        raise CommandError(
            f"--spot-factor: expected a part of the price above 0, at most 1, got {text[:40]!r}"
        )
    return factor


def _amounts(text: str) -> dict[str, int]:
    """`cpu=100m,memory=500Mi`."""
    found: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, _, amount = part.strip().partition("=")
        try:
            found[name] = parse_milli(amount) if name == "cpu" else parse_units(amount)
        except QuantityError:
            found[name] = -1
        if name not in ("cpu", "memory") or found[name] < 0:
            raise CommandError(
                "--overhead: expected amounts such as cpu=100m,memory=500Mi, "
                f"got {part.strip()[:40]!r}"
            )
    return found


# --- submitting


def _tell(request: Request, name: str, found: Read | None, wait: Wait | None) -> None:
    """`found` None: the catalogue goes."""
    facts, submitted = run(_submit(request, name, found))
    parts = sum(isinstance(fact.data, PolicyApplied) for fact in facts)
    value: Plain = {
        "catalogue": name,
        "types": len(found.types) if found else 0,
        "offerings": found.offerings if found else 0,
        "parts": parts,
        "accepted": submitted.accepted,
        "unchanged": submitted.unchanged,
    }

    def page() -> Iterator[str]:
        if found is None:
            yield f"catalogue {name} is gone: {said(submitted)}"
            return
        yield (
            f"catalogue {name}: {count(len(found.types), 'instance type')}, "
            f"{count(found.offerings, 'offering')} in"
            f" {count(parts, 'part')}: {said(submitted)}"
        )

    keys = [fact.key for fact in facts]
    places = [(fact.topic.name, fact.key) for fact in facts]
    show_and_wait(request, value, keys, page, wait, places)


async def _submit(
    request: Request, name: str, found: Read | None
) -> tuple[list[Accepted], Submitted]:
    if request.server:
        return await _submit_over(request, name, found)
    async with opened_ledger(reached(request)) as ledger:
        known = await known_facts(ledger)
        facts = _facts(name, found, standing_parts(known, name))
        return facts, await submit(ledger, facts, known)


async def _submit_over(
    request: Request, name: str, found: Read | None
) -> tuple[list[Accepted], Submitted]:
    from wharfinger_cli.remote import Remote
    from wharfinger_cli.remote_facts import submit_over

    parts = Remote.of(request).listed("/v1/policies", "name", kind=KIND, namespace=name)
    facts = _facts(name, found, parts)
    return facts, await submit_over(request, facts)


def _facts(name: str, found: Read | None, standing: Sequence[str]) -> list[Accepted]:
    """`standing`: the names of the parts that are known. NotFoundError: none is, and the catalogue
    is to be removed."""
    if found is None and not standing:
        raise NotFoundError(f"no catalogue is named {name}")
    parts = parts_of(name, found.types) if found is not None else []
    left = [
        PolicyRemoved(KIND, part, name)
        for part in standing
        if not part.isdigit() or int(part) >= len(parts)
    ]
    return [*(accepted(PolicyApplied(part)) for part in parts), *(accepted(gone) for gone in left)]


def standing_parts(known: LatestFacts, name: str) -> list[str]:
    """The names of the parts that are known of a catalogue."""
    return [
        policy.name for policy in known.policies if policy.kind == KIND and policy.namespace == name
    ]


def parts_of(name: str, types: Sequence[InstanceType]) -> list[Policy]:
    """The catalogue in parts, its types in order of name: as many to a part as its message
    holds."""
    cut: list[list[InstanceType]] = []
    size = PART_BYTES
    for kind in sorted(types, key=lambda kind: kind.name):
        length = len(canonical(kind)) + 1
        if size + length > PART_BYTES:
            cut.append([])
            size = 0
        cut[-1].append(kind)
        size += length
    return [
        Policy(KIND, str(i), name, catalogue=Catalogue(name, tuple(part), i, len(cut)))
        for i, part in enumerate(cut)
    ]
