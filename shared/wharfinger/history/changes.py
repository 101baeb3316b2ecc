"""What is asked "what if" about: policies out of manifests, and settings of the deciders.

A change is what stands behind one `--with`: a file of manifests, or `name=value`. Which settings
there are is one table below; each is a field of the profile that its stage records with every
round, so both runs say which ones they were decided under.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

from wharfinger.domain.binding import Binding
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import converted
from wharfinger.engine.nodes.score import Strategy
from wharfinger.events.intake import (
    BY_HAND,
    LevelModel,
    PolicyModel,
    compile_manifests,
    has_own_placement,
    under,
)
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.karmada.selection import policy_for
from wharfinger.manifests.parse import load_files
from wharfinger.runtime.ledger.errors import LedgerError

COUNT_MAX = 1_000_000


class ChangeError(LedgerError):
    """What was asked for cannot be tried: one line that says what was expected."""


@dataclass(frozen=True, slots=True)
class ProfileChanges:
    """What of the deciders' profiles can be changed; None: as it was recorded."""

    strategy: Strategy | None = None
    round_limit: int | None = None
    repeat_after_s: int | None = None
    provides_after_s: int | None = None

    @property
    def said(self) -> dict[str, object]:
        """What makes the question. A field that came later is left out where it says nothing, so
        that the questions of before keep their ids."""
        fields = asdict(self)
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name != "provides_after_s"
        }

    @property
    def of_both(self) -> ProfileChanges:
        """What holds in the run without changes as well, since it is about the world around."""
        return ProfileChanges(provides_after_s=self.provides_after_s)


@dataclass(frozen=True, slots=True)
class Setting:
    """`field`: of `ProfileChanges`. `values`: those there are; empty: a whole number above zero.
    `does`: for people."""

    name: str
    field: str
    values: tuple[str, ...]
    does: str


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "strategy",
        "strategy",
        get_args(Strategy),
        "which nodes are preferred, emptier or fuller ones",
    ),
    Setting(
        "round-limit",
        "round_limit",
        (),
        "how many bindings without a request are decided in one fleet round",
    ),
    Setting(
        "repeat-after",
        "repeat_after_s",
        (),
        "seconds until the descheduler proposes the same again",
    ),
    Setting(
        "provides-after",
        "provides_after_s",
        (),
        "seconds until a node claim is a node and a removed node is gone, in both closed loops",
    ),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """`policies` replace those of the same key, or are added. `texts`: as it was asked for, for the
    report."""

    policies: tuple[Policy, ...] = ()
    settings: ProfileChanges = field(default_factory=ProfileChanges)
    texts: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(policy.key for policy in self.policies)

    def requested(self, binding: Binding, policies: Mapping[str, Policy]) -> Binding:
        """The binding as it would be asked for: `policies` are those that hold otherwise.

        A binding that one of ours selects goes where it sends it, and so does one whose own policy
        ours replaces. What was applied by hand stays as it is. A placement that came without any
        policy gives way to ours: they were named for this very purpose.
        """
        if not self.policies or binding.policy.startswith(BY_HAND):
            return binding
        ours = {policy.key: policy for policy in self.policies}
        others = (
            {}
            if has_own_placement(binding)
            else {k: p for k, p in policies.items() if k not in ours}
        )
        chosen = policy_for(binding.resource, binding.labels, [*others.values(), *ours.values()])
        if chosen is None:
            chosen = (
                ours.get(binding.policy)
                if not _selected(binding, policies.get(binding.policy))
                else None
            )
        if chosen is None or (chosen.key not in ours and binding.policy not in ours):
            return binding
        return under(binding, chosen)


def _selected(binding: Binding, policy: Policy | None) -> bool:
    """Whether its policy finds it by its labels; a binding requested ready made may be under a
    policy without bearing them."""
    return (
        policy is not None and policy_for(binding.resource, binding.labels, (policy,)) is not None
    )


def changes_of(texts: Sequence[str]) -> Changes:
    """What the texts of `--with` ask for. ChangeError or the manifests' own errors: one line
    each."""
    policies: dict[str, Policy] = {}
    settings = ProfileChanges()
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and not Path(text).exists():
            settings = _set(settings, name.strip(), value.strip())
        else:
            policies |= {policy.key: policy for policy in _policies_in(text)}
    return Changes(tuple(policies.values()), settings, tuple(texts))


def _set(settings: ProfileChanges, name: str, value: str) -> ProfileChanges:
    known = {setting.name: setting for setting in SETTINGS}
    setting = known.get(name)
    if setting is None:
        raise ChangeError(
            f"--with {name}={value}: expected a manifest file or one of {_named(SETTINGS)}"
        )
    if setting.values:
        if value not in setting.values:
            raise ChangeError(
                f"--with {name}: expected {' or '.join(setting.values)}, got {value!r}"
            )
        return _with(settings, setting.field, value)
    if not (value.isascii() and value.isdecimal() and 0 < int(value) <= COUNT_MAX):
        raise ChangeError(
            f"--with {name}: expected a number from 1 to {COUNT_MAX:,}, got {value!r}"
        )
    return _with(settings, setting.field, int(value))


def _with(settings: ProfileChanges, name: str, value: str | int) -> ProfileChanges:
    return converted({**asdict(settings), name: value}, ProfileChanges)


def _named(settings: Iterable[Setting]) -> str:
    return ", ".join(f"{s.name}={'|'.join(s.values) or 'NUMBER'}" for s in settings)


def _policies_in(file: str) -> list[Policy]:
    if not Path(file).exists():
        raise ChangeError(
            f"--with {file}: there is no such file; expected one with policies, "
            f"or one of {_named(SETTINGS)}"
        )
    loaded = load_files([file])
    other = next((m for m in loaded.manifests if not isinstance(m.model, PolicyModel)), None)
    if other is not None:
        raise ChangeError(
            f"--with {file}: expected policies only, got a {other.kind.kind} "
            f"({other.file}:{other.line_of('kind')})"
        )
    levels = next((m for m in loaded.manifests if isinstance(m.model, LevelModel)), None)
    if levels is not None:
        raise ChangeError(
            f"--with {file}: expected policies that decide, got a {levels.kind.kind} "
            f"({file}:{levels.line_of('kind')}): "
            "what it said went with the bindings that named it"
        )
    intake = compile_manifests(loaded.manifests)
    errors = [str(error) for error in (*loaded.errors, *intake.refusals)]
    if errors:
        raise ChangeError("\n".join(errors))
    policies = [fact.data.policy for fact in intake.facts if isinstance(fact.data, PolicyApplied)]
    if not policies:
        raise ChangeError(f"--with {file}: expected at least one policy, got none")
    return policies
