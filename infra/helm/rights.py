"""The rights of collector and actuator as the chart `member` needs them.

    python -m infra.helm.rights > infra/helm/member/files/rights.yaml

Helm cannot run our code, so the chart renders this file. A test compares it with what `rights`
gives now.
"""

from __future__ import annotations

import sys
from io import StringIO

from ruamel.yaml import YAML

from wharfinger.domain.actuation import MODES, VERBS, Verb, default_verbs, possible_verbs
from wharfinger.runtime.kube.joined import OWN_NAMESPACES
from wharfinger.runtime.kube.rights import (
    COPYING_VERBS,
    Manifest,
    actuator_rules,
    collector_rules,
    own_rules,
    secret_rules,
)
from wharfinger.runtime.kube.watched import watched_of

HEADING = "# Written by `python -m infra.helm.rights` from wharfinger.runtime.kube.rights.\n"

KINDS = {"member": False, "hub": True}


def rights() -> dict[str, object]:
    """`collector`: rules by kind of server. `actuator`: those of every actuator, and more by verb.
    `own`: in our namespace. `secrets`: by verb, in each namespace whose Secrets are copied, which
    none of `notCopied` is. `possible` and `default`: kind of server -> mode -> verbs."""
    always = actuator_rules(())
    return {
        "collector": {kind: collector_rules(watched_of(hub)) for kind, hub in KINDS.items()},
        "actuator": {
            "always": always,
            "verbs": [{"verb": verb, "rules": _of_verb(verb, always)} for verb in VERBS],
        },
        "own": own_rules(),
        "secrets": {verb: secret_rules((verb,)) for verb in COPYING_VERBS},
        "notCopied": [*OWN_NAMESPACES],
        "possible": {
            kind: {mode: list(possible_verbs(mode, hub)) for mode in MODES}
            for kind, hub in KINDS.items()
        },
        "default": {
            kind: {mode: list(default_verbs(mode, hub)) for mode in MODES}
            for kind, hub in KINDS.items()
        },
    }


def _of_verb(verb: Verb, always: list[Manifest]) -> list[Manifest]:
    return actuator_rules((verb,))[len(always) :]


def text() -> str:
    yaml, out = YAML(typ="safe", pure=True), StringIO()
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.representer.ignore_aliases = lambda *_: True
    yaml.dump(rights(), out)
    return HEADING + out.getvalue()


if __name__ == "__main__":
    sys.stdout.write(text())
