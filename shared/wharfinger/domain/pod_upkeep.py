"""What of an observed pod decides whether it may be taken off its node, and is nothing to where it
is placed."""

from __future__ import annotations

from wharfinger.domain.ids import LabelKey, LabelText, Remark, Token, Word, WorkloadName
from wharfinger.domain.value import Value


class Owner(Value, frozen=True, array_like=True):
    kind: Word
    name: WorkloadName
    uid: Token = ""


class ContainerState(Value, frozen=True, array_like=True):
    """Of one container. `state`: waiting, running or terminated, why, and with which exit code (0
    where it has not ended)."""

    state: Word = ""
    reason: Remark = ""
    exit_code: int = 0
    restarts: int = 0
    init: bool = False


class PodCondition(Value, frozen=True, array_like=True):
    type: LabelKey
    status: Word
    reason: Remark = ""
    since_us: int = 0


class PodUpkeep(Value, frozen=True):
    """`quality`: its class of service (BestEffort, Burstable, Guaranteed). `local_storage`: it has
    an emptyDir or hostPath volume. `static`: a mirror of what the kubelet runs by itself.
    `annotations`: those of descheduler and Karpenter, and the deletion cost. `claims`: of volumes,
    by name. `created_us`: 0 where it is not known.

    What is usual is not told: `images` where its traits list the same, a container that runs and
    never restarted, and, while they are true and give no reason, the conditions that every pod goes
    through before it is ready."""

    owners: tuple[Owner, ...] = ()
    images: tuple[Token, ...] = ()
    quality: Word = ""
    local_storage: bool = False
    static: bool = False
    claims: tuple[Token, ...] = ()
    phase: Word = ""
    reason: Remark = ""
    containers: tuple[ContainerState, ...] = ()
    conditions: tuple[PodCondition, ...] = ()
    annotations: dict[LabelKey, LabelText] = {}
    created_us: int = 0

    @property
    def of_daemon(self) -> bool:
        return any(owner.kind == "DaemonSet" for owner in self.owners)
