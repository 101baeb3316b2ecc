"""What the texts of our values name: a type for each meaning.

A field says by its type what its text is: `cluster: ClusterName`. For the type checker and on the
wire each of them is a `str`. The export of a history under other names (`history.redaction`) reads
the meaning from the type, so a field is hidden as what it says.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated, TypeVar

import msgspec

from wharfinger.domain.value import NAME_LENGTH_MAX

T = TypeVar("T")

Bounded = Annotated[T, msgspec.Meta(max_length=NAME_LENGTH_MAX)]
"""`Bounded[ClusterName]`: by which things are found, so an index entry must hold it. See
`domain.value.Name`."""


class Meaning(Enum):
    """What a text is. The first few are compared by order, too: their new names keep it."""

    CLUSTER = auto()
    NODE = auto()
    BINDING = auto()
    REGION = auto()
    POD_UID = auto()
    UID = auto()
    """Of a workload: it breaks ties by its parity."""
    POD = auto()
    WORKLOAD = auto()
    NAMESPACE = auto()
    PROVIDER = auto()
    ZONE = auto()
    LABEL_KEY = auto()
    """Of labels and taints."""
    LABEL_VALUE = auto()
    TAINT_PAIR = auto()
    """`key=value`"""
    TAINT_NAME = auto()
    """`key=value:Effect`"""
    RESOURCE = auto()
    MODEL = auto()
    METRIC = auto()
    API_VERSION = auto()
    GVK = auto()
    """`group/version/kind`"""
    AFFINITY = auto()
    POLICY = auto()
    POLICY_KEY = auto()
    """`kind/namespace/name`"""
    ADDRESS = auto()
    TOKEN = auto()
    """Opaque text that is only compared for equality."""
    STREAM = auto()
    EVENT_ID = auto()
    FLEET_DECISION = auto()
    """The id of a decision of a fleet stream: derived from the stream's number and the seq, it says
    no name."""
    CLASS_KEY = auto()
    """The digest of a requirement class."""
    WORD = auto()
    """Of our own vocabulary. Literals are words without saying so."""
    QUANTITY = auto()
    """As Kubernetes writes amounts: it is calculated with, and stays."""
    SPREAD_FIELD = auto()
    REMARK = auto()
    """Text for people: it decides nothing."""
    SUBJECT = auto()
    """Of what a decision is about: `subject_meaning` of the decision says what that is."""
    DROPPED = auto()
    """The manifest as it was written; it is left out."""


ClusterName = Annotated[str, Meaning.CLUSTER]
NodeName = Annotated[str, Meaning.NODE]
BindingName = Annotated[str, Meaning.BINDING]
RegionName = Annotated[str, Meaning.REGION]
PodUid = Annotated[str, Meaning.POD_UID]
WorkloadUid = Annotated[str, Meaning.UID]
PodName = Annotated[str, Meaning.POD]
WorkloadName = Annotated[str, Meaning.WORKLOAD]
NamespaceName = Annotated[str, Meaning.NAMESPACE]
ProviderName = Annotated[str, Meaning.PROVIDER]
ZoneName = Annotated[str, Meaning.ZONE]
LabelKey = Annotated[str, Meaning.LABEL_KEY]
LabelText = Annotated[str, Meaning.LABEL_VALUE]
TaintPair = Annotated[str, Meaning.TAINT_PAIR]
TaintName = Annotated[str, Meaning.TAINT_NAME]
ResourceName = Annotated[str, Meaning.RESOURCE]
DeviceModel = Annotated[str, Meaning.MODEL]
MetricName = Annotated[str, Meaning.METRIC]
ApiVersion = Annotated[str, Meaning.API_VERSION]
ApiKind = Annotated[str, Meaning.GVK]
AffinityName = Annotated[str, Meaning.AFFINITY]
PolicyName = Annotated[str, Meaning.POLICY]
PolicyKey = Annotated[str, Meaning.POLICY_KEY]
Address = Annotated[str, Meaning.ADDRESS]
Token = Annotated[str, Meaning.TOKEN]
StreamName = Annotated[str, Meaning.STREAM]
EventId = Annotated[str, Meaning.EVENT_ID]
FleetDecisionId = Annotated[str, Meaning.FLEET_DECISION]
ClassKey = Annotated[str, Meaning.CLASS_KEY]
Word = Annotated[str, Meaning.WORD]
AmountText = Annotated[str, Meaning.QUANTITY]
SpreadField = Annotated[str, Meaning.SPREAD_FIELD]
Remark = Annotated[str, Meaning.REMARK]
Manifest = Annotated[str, Meaning.DROPPED]
