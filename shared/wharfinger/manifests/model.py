"""The base of all manifest models, and the scalars they share.

No value is coerced, and null means absent, as in the API. A model declares every field of its
object in one of three ways:

- a field of the class: placement reads it;
- `carried`, by name in the head of the class: what runs rather than where (images, probes, volumes'
  sources). It travels with the object and placement has no business with it;
- `unacted`, likewise: it asks something of placement that this version does not act on. One whose
  shape is checked is a field, too.

Any other name is a misspelt field or a field of a newer release; `misspelt` distinguishes them. In
a document of an API that grows (`Kind.open`) the second is accepted and reported; in our
own kinds and in configurations of schedulers, where each field steers decisions, both are refused
(docs/adr/0036). Deeper checks of carried fields are left to the API server that will receive the
object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, ClassVar, Unpack

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from wharfinger.domain.quantities import LIMIT, QuantityError, parse_quantity
from wharfinger.domain.quota import in_milli
from wharfinger.manifests.errors import Path

OPEN = {"open": True}
"""Context of a validation in which fields of newer releases are accepted."""
LIVE = {"live": True}
"""Context of a validation of what an API server has accepted: no name is misspelt there, so every
field that is not known here is of a newer release."""
OTHERS = "\x00others"
"""Under this name, which no document can have, a model gets the names of its unacted and unknown
fields that are set."""


class ExpectedError(ValueError):
    """Raised by a validator. The text says what was expected. The code that reports the error adds
    what was found.

    `field`: the part of the value that is wrong, if not the whole.
    """

    def __init__(self, text: str, *field: str | int) -> None:
        super().__init__(text)
        self.field: Path = field


class NestedError(ValueError):
    """Raised by a validator that has a part of its value checked by another model, which people
    call `name`: all that is wrong below `field`."""

    def __init__(
        self, invalid: ValidationError, name: str, model: type[BaseModel], *field: str | int
    ) -> None:
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
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=_camel, defer_build=True
    )

    carried_names: ClassVar[frozenset[str]] = frozenset()
    unacted_names: ClassVar[frozenset[str]] = frozenset()

    others: Annotated[tuple[str, ...], Field(alias=OTHERS)] = ()

    def __init_subclass__(
        cls, carried: str = "", unacted: str = "", **config: Unpack[ConfigDict]
    ) -> None:
        """`carried`, `unacted`: names as YAML spells them, separated by spaces."""
        super().__init_subclass__(**config)
        cls.carried_names |= frozenset(carried.split())
        cls.unacted_names |= frozenset(unacted.split())

    @model_validator(mode="before")
    @classmethod
    def _set_aside(cls, data: object, info: ValidationInfo) -> object:
        """Keeps what is to be validated: a null field is as if not written; a misspelt one stays
        and is refused by its name."""
        if not isinstance(data, dict):
            return data
        if OTHERS in data:
            raise ExpectedError("names of fields without control characters")
        known, carried, unacted = fields(cls)
        kept: dict[str, object] = {}
        others: list[str] = []
        for name, value in data.items():
            if name in known:
                if value is not None:
                    kept[name] = value
            elif name in carried:
                continue
            elif name in unacted:
                if value not in (None, {}, [], False, ""):
                    others.append(name)
            elif cls.model_config["extra"] == "forbid" and (
                info.context is LIVE or (info.context is OPEN and not misspelt(name, cls))
            ):
                others.append(name)
            else:
                kept[name] = value
        if others:
            kept[OTHERS] = tuple(others)
        return kept

    def unacted(self, path: Path = ()) -> Iterator[Path]:
        """The path of every field that is set here or below and not acted on, those of newer
        releases included."""
        for name, info in type(self).model_fields.items():
            value, alias = getattr(self, name), info.alias or name
            if alias in self.unacted_names and value:
                yield (*path, alias)
            elif name != "others":
                yield from _unacted_in(value, (*path, alias))
        yield from ((*path, name) for name in self.others)

    def unknown(self, path: Path) -> bool:
        """Of a path that `unacted` yields: whether no release known here has such a field."""
        match path:
            case (str(name),) if name in self.others:
                return name not in self.unacted_names
            case (str(name), *rest):
                return _unknown_in(
                    getattr(self, _attributes(type(self)).get(name, "others")), tuple(rest)
                )
            case _:
                return False


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


def _unknown_in(value: object, path: Path) -> bool:
    match value, path:
        case Model(), _:
            return value.unknown(path)
        case list(), (int(i), *rest):
            return _unknown_in(value[i], tuple(rest))
        case dict(), (str(key), *rest):
            return _unknown_in(value[key], tuple(rest))
        case _:
            return False


@cache
def _attributes(model: type[BaseModel]) -> dict[str, str]:
    """What a field is called in Python, by its name in YAML."""
    return {info.alias or name: name for name, info in model.model_fields.items()}


@cache
def fields(model: type[Model]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The names, as YAML spells them, that are validated, carried and unacted."""
    known = frozenset(_attributes(model)) - {OTHERS}
    return known, model.carried_names, model.unacted_names


@cache
def aliases(model: type[BaseModel]) -> frozenset[str]:
    """The field names of a model as YAML spells them."""
    if issubclass(model, Model):
        return frozenset[str]().union(*fields(model))
    return frozenset(_attributes(model))


@cache
def misspelt(name: str, model: type[BaseModel]) -> bool:
    """Whether an unknown name is nearly that of a field: the same but for case and separators, or
    one letter added, left out, replaced or exchanged with its neighbour (two in names of eight and
    more).

    `hostUser` for `hostUsers` is refused, `nodeSelectors` too; `podReplacementStrategy` is taken
    for a newer field. A field in the wrong place cannot be distinguished from a newer field of that
    name, so it is reported and not refused.
    """
    return any(_plain(name) == _plain(known) or few_edits(name, known) for known in aliases(model))


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def few_edits(a: str, b: str) -> bool:
    """Damerau-Levenshtein distance (restricted) of at most 1, of at most 2 for names of at least
    eight letters."""
    most = 2 if min(len(a), len(b)) >= 8 else 1
    if abs(len(a) - len(b)) > most:
        return False
    before, row = list[int](), list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1] <= most


def _whole(value: object) -> object:
    """JSON has one number type, so 2.0 is the integer 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _quantity(value: object) -> str:
    """Quantities may be written as plain numbers. The text is kept, canonical enough to be parsed
    again exactly."""
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


class OwnerReference(Model, carried="apiVersion blockOwnerDeletion"):
    """`controller`: the owner makes such objects and counts them."""

    kind: str
    controller: bool = False
    name: str = ""
    uid: str = ""


class Metadata(
    Model,
    carried="deletionGracePeriodSeconds finalizers generation managedFields resourceVersion "
    "selfLink",
):
    """ObjectMeta. `generateName` is accepted as a name only where `name` is not given: the same
    file must mean the same object."""

    name: Name | None = None
    generate_name: str | None = None
    namespace: Name | None = None
    labels: Labels = {}
    annotations: Labels = {}
    uid: str | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: Time | None = None
    owner_references: list[OwnerReference] = []

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


class Object(Resource, carried="status"):
    metadata: NamedMetadata

    @property
    def name(self) -> str:
        return self.metadata.known_as

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations
