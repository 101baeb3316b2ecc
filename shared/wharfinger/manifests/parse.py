"""Reads files into checked manifests, or lists all their mistakes, one line each.

It does not stop at the first mistake: every document of every file is checked, so that one run
shows all. A kind without a model of its own is read as `any_object` has it, unless its name is
nearly that of a kind that is read, its group is one of ours or a scheduler's configuration, or it
has no group and another version than v1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wharfinger.domain.value import canonical
from wharfinger.manifests.any_object import CLUSTER_SCOPED, AnyObject, Nameless, group_of, has_name
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.document import BYTES_MAX, Document, read_documents
from wharfinger.manifests.errors import ManifestError, Path, dotted, shown
from wharfinger.manifests.kinds import BY_NAME, CLOSED, KINDS, Kind, versions_of
from wharfinger.manifests.kubernetes.core import ConfigMap, CronJob, Workload
from wharfinger.manifests.model import (
    OPEN,
    ExpectedError,
    NestedError,
    Resource,
    aliases,
    few_edits,
)

SUFFIXES = (".yaml", ".yml", ".json")
"""Suffixes of the files that are read in a folder. A file that is named itself is always read."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checked object with where it came from. `above`: its path within the document, when it is
    an item of a List."""

    kind: Kind
    model: Resource
    file: str
    document: Document
    raw: object
    above: Path = ()

    @property
    def json(self) -> str:
        """The user's own object as canonical JSON."""
        return canonical(self.raw).decode()

    @property
    def unacted(self) -> list[str]:
        """Fields that are accepted and not acted on in this version."""
        return [dotted(path) for path in self.model.unacted()]

    def error(self, text: str, *field: str | int) -> ManifestError:
        return ManifestError(self.file, self.line_of(*field), dotted((*self.above, *field)), text)

    def line_of(self, *field: str | int) -> int:
        return self.document.line_of((*self.above, *field))

    def not_expected(self, error: ExpectedError) -> ManifestError:
        """What a conversion found wrong, with the line of what it found."""
        return self.error(
            f"expected {error}, got {shown(_found(self.raw, error.field))}", *error.field
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """All manifests that are right and all errors, both in order of file and line. With any error,
    nothing should be applied."""

    manifests: tuple[Manifest, ...]
    errors: tuple[ManifestError, ...]


def load_files(paths: Sequence[str | FilePath]) -> Loaded:
    """Files and folders (with all below them, in order of name)."""
    return loaded_texts(read_texts(paths))


def read_texts(paths: Sequence[str | FilePath]) -> list[tuple[str, str | ManifestError]]:
    """(name, what it holds or why it cannot be read) of each file, also of those in folders."""
    return [(str(file), _read(file)) for path in paths for file in _files(FilePath(path))]


def loaded_texts(texts: Iterable[tuple[str, str | ManifestError]]) -> Loaded:
    """All documents of all texts, in order."""
    loaded = [
        Loaded((), (text,)) if isinstance(text, ManifestError) else load_manifests(text, name)
        for name, text in texts
    ]
    return Loaded(
        tuple(m for x in loaded for m in x.manifests), tuple(e for x in loaded for e in x.errors)
    )


def load_manifests(text: str, name: str) -> Loaded:
    """All documents of a text; `name` is what errors call it."""
    documents, syntax = read_documents(text, name)
    manifests: list[Manifest] = []
    errors: list[ManifestError] = []
    for document in documents:
        for raw, above in _objects(document):
            match _check(document, name, raw, above):
                case Manifest() as manifest:
                    manifests.append(manifest)
                case found:
                    errors += found
    return Loaded(tuple(manifests), tuple(sorted([*errors, *syntax], key=lambda e: e.line)))


def _files(path: FilePath) -> Iterator[FilePath]:
    if path.is_dir():
        yield from sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    else:
        yield path


def _read(path: FilePath) -> str | ManifestError:
    name = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            size = f"{path.stat().st_size / 2**20:.1f} MiB"
            return _unread(name, f"expected at most {BYTES_MAX >> 20} MiB, got {size}")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _unread(name, f"expected UTF-8, got the byte 0x{content[error.start]:02x}", line)
    except OSError as error:
        return _unread(name, f"expected a file, got an error: {error.strerror or error}")


def _unread(name: str, text: str, line: int = 1) -> ManifestError:
    return ManifestError(name, line, "", text)


def _objects(document: Document) -> Iterator[tuple[object, Path]]:
    """The document, or the items of a `v1 List` as `kubectl get -o yaml` prints them."""
    value = document.value
    if isinstance(value, dict) and value.get("kind") == "List" and value.get("apiVersion") == "v1":
        items = value.get("items")
        if isinstance(items, list):
            yield from ((item, ("items", i)) for i, item in enumerate(items))
            return
    yield value, ()


def _check(
    document: Document, file: str, raw: object, above: Path
) -> Manifest | list[ManifestError]:
    def error(text: str, *field: str | int) -> ManifestError:
        path = (*above, *field)
        return ManifestError(file, document.line_of(path), dotted(path), text)

    if not isinstance(raw, dict):
        return [error(f"expected an object with apiVersion and kind, got {shown(raw)}")]
    if not_json := _not_json(raw, ()):
        field, text = not_json
        return [error(text, *field)]
    api_version, name = raw.get("apiVersion"), raw.get("kind")
    missing = [
        error(f"expected a string, got {shown(value)}", field)
        for field, value in (("apiVersion", api_version), ("kind", name))
        if not isinstance(value, str) or not value
    ]
    if missing:
        return missing
    kind = _kind(cast(str, api_version), cast(str, name), cast("dict[str, object]", raw))
    if kind is None:
        return [_unknown_kind(error, cast(str, api_version), cast(str, name))]
    try:
        model = kind.model.model_validate(raw, context=OPEN if kind.open else None)
    except ValidationError as invalid:
        wrong = _each(invalid, kind.kind, kind.model)
        return [_told(document, file, raw, above, error) for error in wrong]
    return Manifest(kind, model, file, document, raw, above)


def _kind(api_version: str, name: str, raw: dict[str, object]) -> Kind | None:
    """Under which model an object is checked; None: it is taken for a mistake."""
    if (known := BY_NAME.get((api_version, name))) is not None:
        return known
    group = group_of(api_version)
    # The core group has one version, and no definition of a custom resource may be in it.
    if group in CLOSED or (not group and api_version != "v1") or _mistaken(group, name):
        return None
    if not has_name(raw):
        if any(k.kind == name and not k.open for k in KINDS):
            return None
        return Kind(api_version, name, Nameless, namespaced=False)
    return Kind(api_version, name, AnyObject, (group, name) not in CLUSTER_SCOPED)


def _mistaken(group: str, name: str) -> bool:
    """Whether a kind without a model is one that is read here, misspelt or under a version that is
    not read. Older versions of what goes to clusters as it is are no mistake: charts have them."""
    within = [k for k in KINDS if group_of(k.api_version) == group]
    named = [k for k in within if k.kind == name]
    if named:
        return not any(issubclass(k.model, ANY_VERSION) for k in named)
    if not group and versions_of(name):
        return True
    return any(few_edits(name, k.kind) for k in within)


ANY_VERSION = (Workload, CronJob, ConfigMap, ClusterFact)
"""Models of kinds whose other versions are placed like any object. Those of clusters and policies
steer decisions, so that each version has to be read as what it is."""


def read_object(raw: object, kind: str, name: str = "object") -> Resource:
    """An object as an API answers it within a list: without saying what it is. Checked as the
    newest `kind` that is read here.

    Raises ValueError with one line a mistake, under `name` as file.
    """
    said = next(k for k in KINDS if k.kind == kind)
    if isinstance(raw, dict):
        raw = {"apiVersion": said.api_version, "kind": kind, **raw}
    match _check(Document(raw, 1, {}), name, raw, ()):
        case Manifest(model=model):
            return model
        case found:
            raise ValueError("\n".join(str(error) for error in found))


def _unknown_kind(
    error: Callable[..., ManifestError], api_version: str, kind: str
) -> ManifestError:
    if versions := versions_of(kind):
        return error(
            f"expected {' or '.join(versions)} for the kind {kind}, got {shown(api_version)}",
            "apiVersion",
        )
    close = get_close_matches(kind, [k.kind for k in KINDS], n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    known = ", ".join(dict.fromkeys(k.kind for k in KINDS))
    return error(f"expected one of {known}, got {shown(kind)} of {api_version[:60]}{hint}", "kind")


_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "missing": "a value",
}


@dataclass(frozen=True, slots=True)
class _Wrong:
    """One error of pydantic: what the model is called that found it, and where in the object that
    model begins."""

    details: ErrorDetails
    name: str
    model: type[BaseModel]
    above: Path = ()

    @property
    def path(self) -> Path:
        return (*self.above, *self.details["loc"])


def _each(
    invalid: ValidationError, name: str, model: type[BaseModel], above: Path = ()
) -> Iterator[_Wrong]:
    """Every single error, those of models within models too."""
    for details in invalid.errors(include_url=False):
        reason = details.get("ctx", {}).get("error")
        if isinstance(reason, NestedError):
            yield from _each(
                reason.invalid, reason.name, reason.model, (*above, *details["loc"], *reason.field)
            )
        else:
            yield _Wrong(details, name, model, above)


def _told(document: Document, file: str, raw: object, above: Path, wrong: _Wrong) -> ManifestError:
    """One pydantic error in our words."""
    details, path = wrong.details, wrong.path
    found: object = details["input"]
    match details["type"]:
        case "value_error":
            reason = details["ctx"]["error"]
            path = (*path, *reason.field) if isinstance(reason, ExpectedError) else path
            found = _found(raw, path)
            text = f"expected {reason}"
        case "missing":
            found, text = None, "expected a value"
        case "extra_forbidden":
            text = f"expected a field of {wrong.name}{_meant(wrong.model, tuple(details['loc']))}"
            found = str(path[-1])
        case "literal_error":
            text = f"expected {details['ctx']['expected']}"
        case known if known in _EXPECTED:
            text = f"expected {_EXPECTED[known]}"
        case _:
            text = f"expected what {wrong.name} says ({details['msg']})"
    full = (*above, *path)
    return ManifestError(file, document.line_of(full), dotted(full), f"{text}, got {shown(found)}")


def _meant(model: type[BaseModel], path: Path) -> str:
    """The known field whose name is nearest to the unknown one at `path`."""
    inner: type[BaseModel] | None = model
    for part in path[:-1]:
        inner = _field_model(inner, part) if inner is not None and isinstance(part, str) else inner
    if inner is None:
        return ""
    close = get_close_matches(str(path[-1]), sorted(aliases(inner)), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _field_model(model: type[BaseModel], alias: str) -> type[BaseModel] | None:
    """The model of a field, also when it is optional or in a list."""
    for info in model.model_fields.values():
        if info.alias == alias:
            pending: list[object] = [info.annotation]
            while pending:
                candidate = pending.pop()
                if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                    return candidate
                pending += get_args(candidate)
    return None


def _found(raw: object, path: Path) -> object:
    """What the user wrote at `path`, None where nothing is."""
    for part in path:
        match raw, part:
            case dict(), str() if part in raw:
                raw = raw[part]
            case list(), int(i) if i < len(raw):
                raw = raw[i]
            case _:
                return None
    return raw


def _not_json(value: object, path: Path) -> tuple[Path, str] | None:
    """The first thing below that YAML can say and a Kubernetes object cannot."""
    match value:
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    return (
                        *path,
                        str(key),
                    ), f"expected a string as key, got {shown(key)}; put it in quotes"
                if found := _not_json(item, (*path, key)):
                    return found
        case list():
            for i, item in enumerate(value):
                if found := _not_json(item, (*path, i)):
                    return found
        case float() if not math.isfinite(value):
            return path, f"expected a finite number, got {value}"
        case int() if not -(2**63) <= value < 2**64:
            return path, f"expected an integer of at most 64 bits, got {shown(value)}"
    return None
