"""The base of all manifest models, and the scalars they share.

Strict: a field that Kubernetes does not know here is an error, no value is coerced, and null means absent, as in the API. A
field that is known but not followed is declared all the same, in one of two ways:

- `Carried`: what runs rather than where (images, probes, volumes' sources). It travels with the object and placement
  has no business with it.
- `Unacted`: it asks something of placement that is not acted on in this version (pod anti-affinity, failover). `unacted`
  finds every one that is set, so that a user is told and nothing is dropped in silence.

Deeper checks of such fields are left to the API server that will receive the object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from wharfinger.domain.quantities import LIMIT, QuantityError, parse_quantity
from wharfinger.domain.quota import in_milli
from wharfinger.manifests.errors import Path

UNACTED = "unacted"

Carried = object | None
Unacted = Annotated[object | None, UNACTED]


class ExpectedError(ValueError):
    """Raised by a validator. The text says what was expected; what was found is added where the error is told.

    `field`: the part of the value that is meant, where not the whole.
    """

    def __init__(self, text: str, *field: str | int) -> None:
        super().__init__(text)
        self.field: Path = field


class NestedError(ValueError):
    """Raised by a validator that has a part of its value checked by another model, which people call `name`: all that is wrong
    below `field`."""

    def __init__(self, invalid: ValidationError, name: str, model: type[BaseModel], *field: str | int) -> None:
        super().__init__(str(invalid))
        self.invalid, self.name, self.model = invalid, name, model
        self.field: Path = field


_SPELLINGS = {
    "external_id": "externalID",
    "host_ip": "hostIP",
    "host_ipc": "hostIPC",
    "host_pid": "hostPID",
    "ignore_pods_without_pdb": "ignorePodsWithoutPDB",
    "insecure_skip_tls_verification": "insecureSkipTLSVerification",
    "node_id": "nodeID",
    "pod_cidr": "podCIDR",
    "pod_cidrs": "podCIDRs",
    "provider_id": "providerID",
    "proxy_url": "proxyURL",
    "scale_io": "scaleIO",
    "set_hostname_as_fqdn": "setHostnameAsFQDN",
    "share_id": "shareID",
    "volume_id": "volumeID",
}
"""Where Kubernetes' spelling is not plain camelCase."""


def _camel(name: str) -> str:
    if (spelling := _SPELLINGS.get(name)) is not None:
        return spelling
    head, *rest = name.strip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=_camel)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: object) -> object:
        """A null field is as if not written. An unknown field stays, to be refused by its name."""
        if isinstance(data, dict):
            known = aliases(cls)
            return {k: v for k, v in data.items() if v is not None or k not in known}
        return data

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """The path of every field that is set here or below and not acted on, in declared order."""
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if value is None:
                continue
            here = (*path, info.alias or name)
            if UNACTED in info.metadata:
                if value not in ({}, [], False, ""):
                    yield here
            else:
                yield from _unacted_in(value, here)


def _unacted_in(value: object, path: Path) -> Iterator[Path]:
    match value:
        case Model():
            yield from value.unacted(path)
        case list():
            for i, item in enumerate(value):
                yield from _unacted_in(item, (*path, i))
        case dict():
            for key, item in value.items():
                yield from _unacted_in(item, (*path, str(key)))


@cache
def aliases(model: type[BaseModel]) -> frozenset[str]:
    """The field names of a model as YAML spells them."""
    return frozenset(info.alias or name for name, info in model.model_fields.items())


def _whole(value: object) -> object:
    """JSON has one number type, so 2.0 is the integer 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _quantity(value: object) -> str:
    """Quantities may be written as plain numbers. The text is kept, canonical enough to be parsed again exactly."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ExpectedError("a quantity such as 500m, 2 or 1.5Gi")
    text = value if isinstance(value, str) else repr(value)
    try:
        parse_quantity(text)
    except QuantityError:
        raise ExpectedError("a quantity such as 500m, 2 or 1.5Gi") from None
    return text


def _not_negative_quantity(text: str) -> str:
    if parse_quantity(text).nanos < 0:
        raise ExpectedError("a quantity that is not negative")
    if parse_quantity(text).units > LIMIT:
        raise ExpectedError("a quantity below 2^63")
    return text


def _countable(amounts: dict[str, str]) -> dict[str, str]:
    for name, amount in amounts.items():
        if in_milli(name) and parse_quantity(amount).milli > LIMIT:
            raise ExpectedError("a number of cores whose thousandths are below 2^63", name)
    return amounts


_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def is_name(text: str) -> bool:
    return len(text) <= 253 and _NAME.fullmatch(text) is not None


def _name(text: str, *field: str) -> str:
    if not is_name(text):
        raise ExpectedError("a name of at most 253 lower-case letters, digits, '-' and '.'", *field)
    return text


def within(low: int, high: int) -> AfterValidator:
    def check(value: int) -> int:
        if not low <= value <= high:
            raise ExpectedError(f"an integer from {low} to {high}")
        return value

    return AfterValidator(check)


def _not_empty(text: str) -> str:
    if not text:
        raise ExpectedError("a text that is not empty")
    return text


_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(text: str) -> int:
    """A time such as 2026-03-01T12:00:00Z as microseconds of the epoch. Raises ExpectedError."""
    try:
        if _TIME.fullmatch(text) is None:
            raise ValueError
        return (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ExpectedError("a time such as 2026-03-01T12:00:00Z") from None


def _checked_time(text: str) -> str:
    micros(text)
    return text


Int = Annotated[int, BeforeValidator(_whole), within(-(2**63), 2**63 - 1)]
Int32 = Annotated[int, BeforeValidator(_whole), within(-(2**31), 2**31 - 1)]
Count = Annotated[int, BeforeValidator(_whole), within(0, 2**31 - 1)]
SignedQuantity = Annotated[str, BeforeValidator(_quantity)]
Quantity = Annotated[str, BeforeValidator(_quantity), AfterValidator(_not_negative_quantity)]
Name = Annotated[str, AfterValidator(lambda text: _name(text))]
Time = Annotated[str, AfterValidator(_checked_time)]
NotEmpty = Annotated[str, AfterValidator(_not_empty)]
Amounts = Annotated[dict[str, Quantity], AfterValidator(_countable)]
Labels = dict[str, str]


class OwnerReference(Model):
    """`controller`: the owner makes such objects and counts them."""

    kind: str
    api_version: Carried = None
    block_owner_deletion: Carried = None
    controller: bool = False
    name: str = ""
    uid: str = ""


class Metadata(Model):
    """ObjectMeta. `generateName` is accepted as a name only where `name` is not given: the same file must mean the same object."""

    name: Name | None = None
    generate_name: str | None = None
    namespace: Name | None = None
    labels: Labels = {}
    annotations: Labels = {}
    uid: str | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: Time | None = None
    deletion_grace_period_seconds: Carried = None
    finalizers: Carried = None
    generation: Carried = None
    managed_fields: Carried = None
    owner_references: list[OwnerReference] = []
    resource_version: Carried = None
    self_link: Carried = None

    @property
    def controller(self) -> str:
        """The kind of the object that made this one and looks after it; empty: none."""
        return next((owner.kind for owner in self.owner_references if owner.controller), "")


class NamedMetadata(Metadata):
    @model_validator(mode="after")
    def _has_a_name(self) -> NamedMetadata:
        if not self.known_as:
            raise ExpectedError("a name", "name")
        if self.name is None:
            _name(self.known_as, "generateName")
        return self

    @property
    def known_as(self) -> str:
        return self.name or (self.generate_name or "").rstrip("-.")


class Resource(Model):
    """What every manifest has at its top. Kinds with metadata are `Object`s."""

    api_version: str
    kind: str


class Object(Resource):
    metadata: NamedMetadata
    status: Carried = None

    @property
    def name(self) -> str:
        return self.metadata.known_as

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations
