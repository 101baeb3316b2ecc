"""`make demo-kube`: the plane on real API servers, shown as it happens.

    hub      policies and bindings, applied by kubectl      (API server with Karmada's kinds)
    members  bergen, hamburg, oslo: nodes by KWOK, pods by the controllers of Kubernetes

Each step ends when kubectl shows what was meant, and the exit code is 0 only if every step did.
What the servers say is printed as kubectl prints it. All that was started is stopped, however the
demonstration ends. Needs Go, which builds the servers. Karmada's
controllers do not run: the script applies the binding that they make of a policy, and the plane
copies the Deployment to the members. The node is drained by kubectl.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from infra.kube import cluster, demo_objects
from infra.kube.demo_programs import DemoError, Plane, Server, say, until
from infra.kube.programs import KubeError, programs, without_go

from wharfinger.runtime.settings import ENV_PREFIX

HUB, MEMBERS = "hub", ("bergen", "hamburg", "oslo")
LEASE_S = 8
"""Seconds without an answer after which a member counts as silent."""


def main() -> int:
    if reason := without_go():
        print(f"demo-kube: real API servers are built with Go, and {reason}", file=sys.stderr)
        return 2
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        del os.environ[name]  # what would lead to a plane that is somebody's real one
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="wharfinger-demo-kube-"))
    plane = Plane(directory / "plane")
    try:
        Demonstration(directory, plane).run()
    except (DemoError, KubeError) as error:
        print(f"demo-kube: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        plane.down()
        for name in (HUB, *MEMBERS):
            cluster.stop(directory / name)
        shutil.rmtree(directory, ignore_errors=True)
    say(f"Every step came true, in {time.monotonic() - began:.0f} s. All of it is stopped.")
    return 0


class Demonstration:
    def __init__(self, directory: Path, plane: Plane) -> None:
        self._directory = directory
        self._plane = plane
        self._hub = Server(directory / HUB)
        self._members = {name: Server(directory / name) for name in MEMBERS}

    def run(self) -> None:
        self._start()
        self._join()
        self._spread()
        self._side_by_side()
        self._lose_a_member()
        self._roll_out()
        self._drain()
        self._replay()

    # --- the steps

    def _start(self) -> None:
        say("Four API servers start: a hub, and three members with four nodes each.", title=True)
        programs()
        cluster.start(self._hub.directory, (), with_parent=True)
        self._hub.kubectl("apply", "--server-side", "-f", str(demo_objects.KARMADA))
        self._hub.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for member in self._members.values():
            wanted = (cluster.CONTROLLERS, cluster.KWOK)
            cluster.start(member.directory, wanted, with_parent=True)
            member.apply(*demo_objects.nodes(member.name))
        self._members["oslo"].show("get", "nodes")

    def _join(self) -> None:
        say(
            "The plane starts and joins them. It may bind pods and copy workloads in the members, "
            "and write the clusters of bindings in the hub; it has no other right to write.",
            title=True,
        )
        self._plane.up()
        for name, member in self._members.items():
            member.apply(demo_objects.namespace(demo_objects.HOME))
            verbs = ("--verb=bind", "--verb=copy")
            self._plane.join(member, "--mode=act", *verbs, f"--lease={LEASE_S}")
            say(f"{name} is joined: mode act, verbs bind and copy")
        verbs = ("--verb=karmada", "--verb=templates")
        self._plane.join(self._hub, "--hub", "--mode=fleet", *verbs)
        say("hub is joined: mode fleet, verbs karmada and templates")

    def _spread(self) -> None:
        replicas = demo_objects.REPLICAS
        say(
            f"kubectl applies a policy, a Deployment of {replicas} replicas and its binding to "
            "the hub. Wharfinger decides the clusters and writes them into the binding.",
            title=True,
        )
        self._hub.apply(*demo_objects.fleet())
        until("the clusters of the binding", lambda: sum(self._targets().values()) == replicas)
        self._hub.show(
            "get",
            "resourcebinding",
            "-n",
            demo_objects.HOME,
            "-o",
            "custom-columns=BINDING:.metadata.name,CLUSTERS:.spec.clusters[*].name,"
            "REPLICAS:.spec.clusters[*].replicas",
        )
        say(
            "It copies the Deployment to the members, each with its share of the replicas. Their "
            "controllers make pods, which wait for our scheduler and are bound."
        )
        self._settle(replicas, self._members)

    def _side_by_side(self) -> None:
        say("What kubectl shows and what `wharfinger explain` says are the same.", title=True)
        name = max(self._targets().items(), key=lambda target: target[1])[0]
        member = self._members[name]
        member.show(
            "get",
            "pods",
            "-n",
            demo_objects.HOME,
            "-o",
            "custom-columns=POD:.metadata.name,NODE:.spec.nodeName,"
            r"DECISION:.metadata.annotations.wharfinger\.io/seq",
        )
        pod = member.items("pods", "-n", demo_objects.HOME)[0]["metadata"]
        decision = pod["annotations"]["wharfinger.io/decision"]
        text = self._plane.show("explain", demo_objects.BINDING, "--decision", decision)
        if decision not in text or "same bytes" not in text:
            raise DemoError(f"explain of decision {decision} does not tell it")

    def _lose_a_member(self) -> None:
        lost = min(self._targets().items(), key=lambda target: (target[1], target[0]))[0]
        there = self._targets()[lost]
        server = self._members[lost]
        before = server.pods(demo_objects.HOME)
        others = {name: one for name, one in self._members.items() if name != lost}
        say(
            f"The API server of {lost} is killed. It holds {there} replicas. After "
            f"{LEASE_S} s of silence they are placed elsewhere too.",
            title=True,
        )
        cluster.restart(
            server.directory, "kube-apiserver", between=lambda: self._without(lost, others)
        )
        say(f"{lost} answers again. Its pods are as they were: nothing was deleted there.")
        if server.pods(demo_objects.HOME) != before:
            raise DemoError(f"{lost}: its pods have changed while it was away")
        until(
            "the surplus to go",
            lambda: sum(self._targets().values()) == demo_objects.REPLICAS,
            lambda: str(self._targets()),
        )
        self._settle(demo_objects.REPLICAS, self._members)

    def _without(self, lost: str, others: dict[str, Server]) -> None:
        """Until all replicas are in the members that are left."""
        until(
            "the replicas to be decided elsewhere",
            lambda: sum(self._targets()[name] for name in others) >= demo_objects.REPLICAS,
            lambda: str(self._targets()),
        )
        self._settle(demo_objects.REPLICAS, others)

    def _roll_out(self) -> None:
        member = self._members["bergen"]
        say(
            "A rollout in a full part of bergen: two nodes have room for one more pod only.",
            title=True,
        )
        member.apply(*demo_objects.full())
        home, count = demo_objects.FULL, demo_objects.FULL_REPLICAS
        until("the nodes to be full", lambda: len(member.pods(home)) == count)
        old = set(member.pods(home))
        member.kubectl("rollout", "restart", "deployment/web", "-n", home)
        member.show("rollout", "status", "deployment/web", "-n", home, "--timeout=120s", last=True)
        until(
            "every pod to be a new one with a node",
            lambda: len(member.pods(home)) == count and not old & set(member.pods(home)),
        )
        on = member.by_node(home)
        say(f"{count} new pods: " + ", ".join(f"{n} on {node}" for node, n in sorted(on.items())))
        if max(on.values()) > demo_objects.FULL_ROOM:
            raise DemoError(f"a node has more than {demo_objects.FULL_ROOM} pods, its room")

    def _drain(self) -> None:
        member, home, count = self._members["bergen"], demo_objects.GUARDED, 6
        say(
            "A node is drained in bergen, with a PodDisruptionBudget that lets one pod go at a "
            "time. Wharfinger binds each new pod, and the next may go.",
            title=True,
        )
        member.apply(*demo_objects.guarded(count))
        until("the pods to be ready", lambda: self._healthy(member) == count)
        on = member.by_node(home)
        node = max(sorted(on), key=lambda name: on[name])
        least = member.watched_least(
            lambda: self._healthy(member),
            "drain",
            node,
            f"--pod-selector=app={home}",
            "--ignore-daemonsets",
            "--timeout=120s",
        )
        until("the pods to be back", lambda: self._healthy(member) == count)
        if least < count - 1:
            raise DemoError(f"{least} pods were ready, the budget asks for {count - 1}")
        if node in member.by_node(home):
            raise DemoError(f"{node} has pods after its drain")
        say(f"{node} is empty; at every look at least {least} of {count} pods were ready")
        member.show("get", "pdb", "-n", home)

    def _healthy(self, member: Server) -> int:
        found = member.items("pods", "-n", demo_objects.GUARDED)
        return sum(demo_objects.is_ready(pod) for pod in found)

    def _replay(self) -> None:
        say(
            "The servers are stopped. The ledger is verified, and every decision taken again.",
            title=True,
        )
        for name in (*MEMBERS, HUB):
            cluster.stop(self._directory / name)
        self._plane.show("audit", "verify")
        self._plane.show("replay")

    # --- what is waited for

    def _targets(self) -> dict[str, int]:
        """Member -> replicas, as the binding in the hub says; 0 where it is not named."""
        found = self._hub.get("resourcebinding", demo_objects.BINDING_NAME, demo_objects.HOME)
        named = {one["name"]: one.get("replicas", 0) for one in found["spec"].get("clusters", [])}
        return {name: named.get(name, 0) for name in MEMBERS}

    def _settle(self, replicas: int, members: dict[str, Server]) -> None:
        """Until so many pods have nodes, in each member as many as the binding says."""

        def there() -> dict[str, int]:
            return {name: len(one.pods(demo_objects.HOME)) for name, one in members.items()}

        def settled() -> bool:
            targets, found = self._targets(), there()
            return found == {name: targets[name] for name in members} and (
                sum(found.values()) >= replicas
            )

        def in_words() -> str:
            return ", ".join(f"{count} in {name}" for name, count in there().items())

        until(f"{replicas} pods to have nodes", settled, in_words)
        say(f"Pods with a node: {in_words()}")


if __name__ == "__main__":
    sys.exit(main())
