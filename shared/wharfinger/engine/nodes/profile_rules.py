"""The rules of one profile, sorted by array form, with the numbers of their verdicts.

A rule is instantiated once per profile by its registered name, whether built in or a user's. The
kernels have one slot for each of these: a negative fact score and a positive one, a spread and an
affinity between pods, a fit and a balance of resources, a load rule and a device rule. If several
rules have the same form, the first gets the slot; the others are evaluated node by node, like rules
without a form.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TypeVar

from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Profile
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.profile import default_profile
from wharfinger.engine.framework.protocols import Plugin
from wharfinger.engine.framework.registry import registry
from wharfinger.engine.framework.status import Status
from wharfinger.engine.nodes.facts import FactColumns
from wharfinger.engine.nodes.fit import NO_DEVICES
from wharfinger.engine.nodes.forms import (
    AmountBalance,
    AmountFit,
    DeviceColumn,
    FactColumn,
    Form,
    LoadColumn,
    Scale,
    TopologyCounter,
)
from wharfinger.engine.nodes.verdicts import REASONS, NodeVerdict, VerdictCodes, answered

ALONE = (AmountFit, AmountBalance, LoadColumn, DeviceColumn)
"""Forms of which a profile has one each."""

F = TypeVar("F", AmountFit, AmountBalance, LoadColumn, DeviceColumn)

Named = tuple[str, F]


class ProfileRules:
    """Instantiates the rules of one profile and sorts them by array form.

    `made`: name -> rule, for rules that filter or score. `forms`: name -> array form; `asked`:
    rules evaluated node by node; `asked_scores`: rules whose score is evaluated node by node.
    `weights`: name -> weight of the score. `codes`: the numbers of the verdicts.

    A name that is not registered is in `asked`: instantiating the framework for it reports the
    error. `scoring`: only this rule scores; None: all do.
    """

    def __init__(self, profile: Profile, scoring: str | None = None) -> None:
        self.profile = profile
        scores = {use.name: use.weight for use in profile.at("score")}
        self.weights = {name: weight for name, weight in scores.items() if scoring in (None, name)}
        self.filters = [use.name for use in profile.at("filter")]
        filtering = [*(use.name for use in profile.at("preFilter")), *self.filters]
        known = registry()
        self.names = tuple(dict.fromkeys([*filtering, *scores]))
        self.made: dict[str, Plugin] = {
            name: known[name](profile.arguments) for name in self.names if name in known
        }
        self.forms = self._forms()
        self.codes = VerdictCodes(self.filters)
        self.codes.add(
            *(v for rule in self.made.values() for v in getattr(rule, "verdicts", ())), NO_DEVICES
        )
        self._asked_verdicts = {
            name: self._asked_verdict(name) for name in self.names if name not in self.forms
        }
        self.codes.add(*self._asked_verdicts.values())
        self.asked = frozenset(
            n for n in self._asked_verdicts if n in filtering or n in self.weights
        )
        self.facts = FactColumns(
            {name: form for name, form in self._all(FactColumn) if name in self.filters},
            self._scoring("against"),
            self._scoring("toward"),
        )
        self.fit = self._one(AmountFit)
        self.balance = self._one(AmountBalance)
        self.load = self._one(LoadColumn)
        self.devices = self._one(DeviceColumn)
        self.counters = list(self._all(TopologyCounter))
        self.relative_weights = self._relative_weights()
        self.plain = [
            (self.weights[name], form)
            for name, form in self._all(FactColumn)
            if form.scale == "plain" and name in self.weights
        ]
        self.asked_scores = frozenset(name for name in self.weights if self._score_is_asked(name))

    def weight(self, name: str | None) -> int:
        """Returns the weight of a rule's score; 0: it does not score."""
        return self.weights.get(name or "", 0)

    def scores_counters(self, name: str, counter: TopologyCounter) -> bool:
        """Whether the score of this rule is computed from its topology counters."""
        return name in self.weights and self._counting(counter.scores) == name

    def asked_code(self, plugins: str) -> int:
        """Returns the encoded verdict of a refusal by a rule that is evaluated node by node.
        `plugins`: as in `Status.plugin`; if it names several rules, the first one is used."""
        name = plugins.split(" ", 1)[0]
        return self.codes.at(self.codes.ranks.get(name, 0), self._asked_verdicts[name])

    # --- by form

    def _relative_weights(self) -> tuple[int, int, int, int]:
        """Returns the weights of the four scores that are normalised over the feasible nodes:
        preferred taints (scale `against`), preferred node affinity (scale `toward`), topology
        spread, inter-pod affinity. 0: the profile has no such score."""
        columns = {form: name for name, form in self._all(FactColumn)}
        facts = [
            columns.get(column) if column is not None else None
            for column in (self.facts.against, self.facts.toward)
        ]
        names = [*facts, self._counting("spread"), self._counting("attraction")]
        against, toward, spread, attraction = (self.weight(name) for name in names)
        return against, toward, spread, attraction

    def _forms(self) -> dict[str, Form]:
        forms: dict[str, Form] = {}
        for name, rule in self.made.items():
            form: Form | None = rule.form() if hasattr(rule, "form") else None
            if form is not None and not (
                isinstance(form, ALONE) and type(form) in map(type, forms.values())
            ):
                forms[name] = form
        return forms

    def _one(self, sort: type[F]) -> tuple[str, F] | None:
        return next(
            ((name, form) for name, form in self.forms.items() if isinstance(form, sort)), None
        )

    def _all(self, sort: type[FormT]) -> Iterator[tuple[str, FormT]]:
        return ((name, form) for name, form in self.forms.items() if isinstance(form, sort))

    def _scoring(self, scale: Scale) -> FactColumn | None:
        return next(
            (
                form
                for n, form in self._all(FactColumn)
                if form.scale == scale and n in self.weights
            ),
            None,
        )

    def _counting(self, sort: str) -> str | None:
        if not sort:
            return None
        return next(
            (
                n
                for n, form in self._all(TopologyCounter)
                if form.scores == sort and n in self.weights
            ),
            None,
        )

    def _score_is_asked(self, name: str) -> bool:
        match self.forms.get(name):
            case FactColumn(scale=scale) as form:
                return scale != "plain" and self._scoring(scale) is not form
            case TopologyCounter(scores=sort):
                return bool(sort) and self._counting(sort) != name
            case DeviceColumn(strategy=strategy):
                return bool(strategy)  # until it is known what is typically asked for
            case AmountFit() | AmountBalance() | LoadColumn():
                return False
            case None:
                return True

    def _asked_verdict(self, name: str) -> NodeVerdict:
        reason = "Plugin" if name not in self.made else reason_of(self.made[name])
        return ASKED.setdefault(reason, NodeVerdict(reason, words=answered))


FormT = TypeVar("FormT", FactColumn, TopologyCounter)

ASKED: dict[NodeReason, NodeVerdict] = {}
"""Reason -> the verdict of the rules with this reason that are asked node by node."""


def reason_of(rule: Plugin) -> NodeReason:
    """Returns the reason under which a node is counted that the rule refuses. `Plugin`: the rule
    states no reason, or an unknown one."""
    reason: NodeReason = getattr(rule, "reason", "Plugin")
    return reason if reason in REASONS else "Plugin"


def reason_for(rule: Plugin | None, status: Status, asked: Requirements) -> NodeReason:
    """Returns the reason of one refusal. A rule with several reasons selects it by `status`; other
    rules have one reason (`reason_of`)."""
    if rule is None:
        return "Plugin"
    found: NodeReason = (
        rule.reason_for(status, asked) if hasattr(rule, "reason_for") else reason_of(rule)
    )
    return found


@cache
def default_rules() -> ProfileRules:
    """Returns the rules of the default profile, for estimates that are made without a profile."""
    return ProfileRules(default_profile())
