"""How nodes are chosen, as users of kube-schedulers write it: what a configuration means, and how a
wrong one is refused."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from wharfinger.domain.policy import Policy
from wharfinger.domain.scheduler import (
    Arguments,
    DevicesArgs,
    DynamicArgs,
    Extender,
    FitArgs,
    InterPodArgs,
    ManagedResource,
    Profile,
    SchedulerConfig,
    ShapePoint,
    WeightedResource,
)
from wharfinger.domain.scheduler_plugins import KnownPlugin
from wharfinger.domain.scheduler_points import default_points
from wharfinger.engine.devices.strategies import STRATEGIES
from wharfinger.engine.framework.profile import default_profile
from wharfinger.events.intake import compile_deletions, compile_manifests
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.manifests.kubernetes.installed_plugins import known_plugins
from wharfinger.manifests.parse import load_files, load_manifests

SCHEDULERS = Path(__file__).parent / "schedulers.yaml"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def compiled(text: str) -> tuple[Policy | None, list[str]]:
    """The policy, or what is said against it."""
    loaded = load_manifests(text, "scheduler.yaml")
    if loaded.errors:
        return None, [str(error) for error in loaded.errors]
    made = compile_manifests(loaded.manifests)
    if made.errors:
        return None, [str(error) for error in made.errors]
    (fact,) = [f.data for f in made.facts if isinstance(f.data, PolicyApplied)]
    return fact.policy, []


def config(body: str, head: str = HEAD) -> SchedulerConfig:
    policy, errors = compiled(head + textwrap.dedent(body))
    assert errors == []
    assert policy is not None
    assert policy.scheduler is not None
    return policy.scheduler


def refused(body: str, head: str = HEAD) -> list[str]:
    policy, errors = compiled(head + textwrap.dedent(body))
    assert policy is None
    return errors


def profile(body: str) -> Profile:
    (found,) = config(body).profiles
    return found


def weights(found: Profile) -> dict[str, int]:
    return {use.name: use.weight for use in found.at("score")}


# What it means.


def test_a_configuration_that_says_nothing_is_the_default_one() -> None:
    found = config("")
    assert found.profiles == (default_profile(),)
    assert (found.percentage, found.initial_backoff_s, found.max_backoff_s, found.parallelism) == (
        0,
        1,
        10,
        16,
    )
    assert found.profile("") == default_profile()
    assert found.profile("another") is None


def test_what_concerns_a_kube_schedulers_process_is_carried() -> None:
    found = config(
        """
        parallelism: 8
        leaderElection: {leaderElect: true}
        clientConnection: {kubeconfig: /etc/kube/config, qps: 50}
        enableProfiling: true
        percentageOfNodesToScore: 20
        podInitialBackoffSeconds: 2
        podMaxBackoffSeconds: 60
        """
    )
    assert (found.parallelism, found.percentage, found.initial_backoff_s, found.max_backoff_s) == (
        8,
        20,
        2,
        60,
    )


def test_profiles_are_found_by_the_name_that_pods_give() -> None:
    found = config(
        """
        profiles:
        - schedulerName: default-scheduler
        - schedulerName: packed
          percentageOfNodesToScore: 50
          pluginConfig:
          - name: NodeResourcesFit
            args:
              apiVersion: kubescheduler.config.k8s.io/v1
              kind: NodeResourcesFitArgs
              scoringStrategy: {type: MostAllocated,
                resources: [{name: cpu, weight: 3}, {name: memory}]}
        """
    )
    packed = found.profile("packed")
    assert packed is not None
    assert packed.percentage == 50
    assert packed.points == default_points()
    assert packed.arguments.fit == FitArgs(
        "MostAllocated", (WeightedResource("cpu", 3), WeightedResource("memory", 1))
    )


def test_a_score_that_is_named_again_has_its_new_weight_and_goes_first() -> None:
    found = profile(
        """
        profiles:
        - plugins:
            score:
              enabled: [{name: NodeResourcesFit, weight: 7}, {name: TaintToleration}]
              disabled: [{name: ImageLocality}]
        """
    )
    assert list(weights(found).items())[:2] == [("NodeResourcesFit", 7), ("TaintToleration", 1)]
    assert weights(found)["NodeAffinity"] == 2
    assert "ImageLocality" not in weights(found)
    assert [use.name for use in found.at("filter")] == [
        use.name for use in default_profile().at("filter")
    ]


def test_disabled_and_enabled_at_one_point_goes_to_the_end() -> None:
    found = profile(
        """
        profiles:
        - plugins:
            filter:
              disabled: [{name: NodeName}]
              enabled: [{name: NodeName}]
        """
    )
    assert [use.name for use in found.at("filter")][-1] == "NodeName"


def test_all_of_a_point_can_be_off() -> None:
    found = profile('profiles: [{plugins: {score: {disabled: [{name: "*"}]}}}]')
    assert found.at("score") == ()
    assert found.at("preScore") == default_profile().at("preScore")


def test_a_plugin_can_be_off_everywhere() -> None:
    found = profile("profiles: [{plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}}]")
    for uses in found.points.values():
        assert "NodeResourcesFit" not in [use.name for use in uses]


def test_a_profile_can_be_built_from_nothing() -> None:
    found = profile(
        """
        profiles:
        - plugins:
            multiPoint:
              disabled: [{name: "*"}]
              enabled: [{name: PrioritySort}, {name: DefaultBinder},
                {name: NodeResourcesFit, weight: 2}]
        """
    )
    assert {point: [use.name for use in uses] for point, uses in found.points.items()} == {
        "queueSort": ["PrioritySort"],
        "preFilter": ["NodeResourcesFit"],
        "filter": ["NodeResourcesFit"],
        "preScore": ["NodeResourcesFit"],
        "score": ["NodeResourcesFit"],
        "bind": ["DefaultBinder"],
    }
    assert weights(found) == {"NodeResourcesFit": 2}


def test_cranes_configuration_is_read() -> None:
    found = profile(
        """
        profiles:
        - schedulerName: default-scheduler
          plugins:
            filter: {enabled: [{name: Dynamic}]}
            score: {enabled: [{name: Dynamic, weight: 3}]}
          pluginConfig:
          - name: Dynamic
            args: {policyConfigPath: /etc/kubernetes/policy.yaml}
        """
    )
    assert weights(found)["Dynamic"] == 3
    assert found.arguments.dynamic == DynamicArgs()


def test_beta_versions_are_read_with_the_weights_of_their_time() -> None:
    body = """
    healthzBindAddress: 0.0.0.0:10251
    profiles: [{plugins: {score: {enabled: [{name: Dynamic, weight: 3}]}}}]
    """
    weighed = {
        version: weights(config(body, HEAD.replace("/v1\n", f"/{version}\n")).profiles[0])
        for version in ("v1beta2", "v1beta3")
    }
    assert weighed["v1beta3"] == weights(default_profile())
    assert weighed["v1beta2"] == weighed["v1beta3"] | {
        "TaintToleration": 1,
        "NodeAffinity": 1,
        "InterPodAffinity": 1,
    }


def test_a_plugin_may_be_named_where_its_work_is_not_ours() -> None:
    found = profile("profiles: [{plugins: {preBind: {enabled: [{name: VolumeBinding}]}}}]")
    assert found.at("preBind") == ()


def test_plugins_of_other_releases_can_be_switched_off() -> None:
    assert (
        profile("profiles: [{plugins: {multiPoint: {disabled: [{name: NodeDeclaredFeatures}]}}}]")
        == default_profile()
    )


def test_arguments_of_every_plugin_are_read() -> None:
    found = profile(
        """
        profiles:
        - pluginConfig:
          - {name: NodeResourcesFit, args: {ignoredResources: [a.b/c], ignoredResourceGroups: [d.e],
              scoringStrategy: {
              type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [
                {utilization: 0, score: 0}, {utilization: 100, score: 10}]}}}}
          - {name: NodeResourcesBalancedAllocation, args: {formula: ByChange,
              resources: [{name: cpu}, {name: a.b/c}]}}
          - {name: InterPodAffinity, args: {
              hardPodAffinityWeight: 5, ignorePreferredTermsOfExistingPods: true}}
          - {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [
              {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}
          - {name: NodeAffinity, args: {addedAffinity: {
              requiredDuringSchedulingIgnoredDuringExecution: {
              nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}}}
          - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 0,
              minCandidateNodesAbsolute: 5, wholeGroups: true}}
          - {name: VolumeBinding, args: {bindTimeoutSeconds: 5}}
          - {name: DynamicResources, args: {filterTimeout: 2s}}
          - {name: Dynamic, args: {stale: closed, damped: false}}
          - {name: Devices, args: {}}
        """
    ).arguments
    assert found.fit.shape == (ShapePoint(0, 0), ShapePoint(100, 10))
    assert (found.fit.ignored_resources, found.fit.ignored_groups) == (("a.b/c",), ("d.e",))
    assert found.balanced.by_change
    assert found.inter_pod == InterPodArgs(5, True)
    assert not found.spread.system
    assert [(c.key, c.max_skew, c.hard) for c in found.spread.constraints] == [("zone", 2, False)]
    assert found.node_affinity.required is not None
    assert (found.preemption.min_candidates_percent, found.preemption.min_candidates) == (0, 5)
    assert found.preemption.whole_groups
    assert found.volume_binding.bind_timeout_s == 5
    assert found.dynamic_resources.filter_timeout_s == 2
    assert found.dynamic == DynamicArgs("closed", False)
    assert found.devices == DevicesArgs()


def test_every_strategy_for_devices_can_be_named_and_no_other() -> None:
    for strategy in STRATEGIES:
        found = profile(
            f"profiles: [{{pluginConfig: [{{name: Devices, args: {{strategy: {strategy}}}}}]}}]"
        )
        assert found.arguments.devices.strategy == strategy
    (error,) = refused("profiles: [{pluginConfig: [{name: Devices, args: {strategy: worst-fit}}]}]")
    assert "profiles[0].pluginConfig[0].args.strategy: expected" in error
    for strategy in STRATEGIES:
        assert repr(strategy) in error


def test_extenders_are_read_and_what_they_account_for_need_not_fit() -> None:
    found = config(
        """
        extenders:
        - urlPrefix: https://extender.example:8443/scheduler/
          filterVerb: filter
          prioritizeVerb: prioritize
          weight: 4
          enableHTTPS: true
          httpTimeout: 1500ms
          nodeCacheCapable: true
          ignorable: true
          managedResources: [{name: example.com/fpga, ignoredByScheduler: true},
            {name: example.com/other}]
          tlsConfig: {caFile: /ca.pem, serverName: extender}
        """
    )
    assert found.extenders == (
        Extender(
            "https://extender.example:8443/scheduler",
            "filter",
            "prioritize",
            weight=4,
            timeout_ms=1500,
            node_cache_capable=True,
            ignorable=True,
            ca_file="/ca.pem",
            server_name="extender",
            resources=(
                ManagedResource("example.com/fpga", True),
                ManagedResource("example.com/other"),
            ),
        ),
    )
    assert found.profiles[0].arguments.fit.ignored_resources == ("example.com/fpga",)


# What is refused, and where.


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "profile: []",
            (
                "scheduler.yaml:3: profile: expected a field of KubeSchedulerConfiguration (did "
                "you "
                "mean profiles?)"
            ),
        ),
        ("parallelism: 0", "scheduler.yaml:3: parallelism: expected an integer from 1"),
        (
            "percentageOfNodesToScore: 101",
            "scheduler.yaml:3: percentageOfNodesToScore: expected an integer from 0 to 100",
        ),
        (
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4",
            (
                "scheduler.yaml:4: podMaxBackoffSeconds: expected at least "
                "podInitialBackoffSeconds "
                "(5), got 4"
            ),
        ),
        (
            "profiles:\n- schedulerName: a\n- schedulerName: a",
            (
                "scheduler.yaml:5: profiles[1].schedulerName: expected each schedulerName once, "
                "got 'a'"
            ),
        ),
        (
            "profiles:\n- schedulerName: a\n- {}",
            "scheduler.yaml:5: profiles[1].schedulerName: expected a name, got nothing",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: Dynamik}]}}}]",
            (
                "scheduler.yaml:3: profiles[0].plugins.score.enabled[0].name: "
                "expected one of the plugins SchedulingGates"
            ),
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: NodeDeclaredFeatures}]}}}]",
            "(a plugin of Kubernetes that is not supported), got 'NodeDeclaredFeatures'",
        ),
        (
            "profiles: [{plugins: {filter: {disabled: [{name: Dynamik}]}}}]",
            "profiles[0].plugins.filter.disabled[0].name: expected one of the plugins",
        ),
        (
            "profiles: [{plugins: {permit: {enabled: [{name: NodeName}]}}}]",
            (
                "profiles[0].plugins.permit.enabled[0].name: expected a plugin that works at "
                "permit, "
                "got 'NodeName'"
            ),
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: NodeName}, {name: NodeName}]}}}]",
            "profiles[0].plugins.filter.enabled[1].name: expected each plugin once, got 'NodeName'",
        ),
        (
            'profiles: [{plugins: {multiPoint: {disabled: [{name: "*"}]}}}]',
            (
                "profiles[0].plugins: expected one plugin to be left at queueSort (there would be "
                "none)"
            ),
        ),
        (
            "profiles: [{plugins: {bind: {disabled: [{name: DefaultBinder}]}}}]",
            "profiles[0].plugins: expected a plugin to be left at bind",
        ),
        (
            'profiles: [{plugins: {preScore: {disabled: [{name: "*"}]}}}]',
            (
                "profiles[0].plugins.preScore: expected TaintToleration at preScore, too, "
                "as long as it is at score"
            ),
        ),
        (
            "profiles: [{plugins: {preFilter: {disabled: [{name: NodePorts}]}}}]",
            (
                "profiles[0].plugins.preFilter: expected NodePorts at preFilter, too, "
                "as long as it is at filter"
            ),
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeName, args: {a: 1}}]}]",
            "profiles[0].pluginConfig[0].args: expected no arguments of NodeName",
        ),
        (
            "profiles: [{pluginConfig: [{name: Devices}, {name: Devices}]}]",
            "profiles[0].pluginConfig[1].name: expected the arguments of each plugin once",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {kind: DynamicArgs}}]}]",
            (
                "profiles[0].pluginConfig[0].args.kind: expected NodeResourcesFitArgs, "
                "got 'DynamicArgs'"
            ),
        ),
        (
            (
                "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n"
                "    args: {scoringStrategy: {type: Most}}"
            ),
            "scheduler.yaml:6: profiles[0].pluginConfig[0].args.scoringStrategy.type: expected",
        ),
        (
            (
                "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
                "{type: "
                "RequestedToCapacityRatio}}}]}]"
            ),
            (
                "args.scoringStrategy.requestedToCapacityRatio: expected a shape of at least one "
                "point, got nothing"
            ),
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
            "{requestedToCapacityRatio: {shape: "
            "[{utilization: 50, score: 1}, {utilization: 50, score: 2}]}}}}]}]",
            (
                "requestedToCapacityRatio.shape[1].utilization: expected a utilization above 50, "
                "the one before, got 50"
            ),
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
            "{requestedToCapacityRatio: {shape: "
            "[{utilization: 50, score: 11}]}}}}]}]",
            "requestedToCapacityRatio.shape[0].score: expected an integer from 0 to 10, got 11",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
            "{resources: "
            "[{name: cpu, weight: 101}]}}}]}]",
            "scoringStrategy.resources[0].weight: expected an integer from 0 to 100, got 101",
        ),
        (
            (
                "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResourceGroups: "
                "[a/b]}}]}]"
            ),
            "args.ignoredResourceGroups[0]: expected the group of a resource",
        ),
        (
            (
                "profiles: [{pluginConfig: [{name: NodeResourcesBalancedAllocation, args: "
                "{resources: [{name: cpu, weight: 2}]}}]}]"
            ),
            "args.resources[0].weight: expected a weight of 1: balance knows no weights, got 2",
        ),
        (
            (
                "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: "
                "101}}]}]"
            ),
            "args.hardPodAffinityWeight: expected an integer from 0 to 100, got 101",
        ),
        (
            "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: "
            "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}]}]",
            (
                "args.defaultingType: expected defaultingType List where there are "
                "defaultConstraints, got nothing"
            ),
        ),
        (
            "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, "
            "defaultConstraints: "
            "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: "
            "{}}]}}]}]",
            (
                "args.defaultConstraints[0].labelSelector: expected no labelSelector: "
                "each pod has its own"
            ),
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {}}}]}]",
            "args.addedAffinity: expected a required or a preferred affinity",
        ),
        (
            "profiles: [{pluginConfig: [{name: DefaultPreemption, args: "
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}}]}]",
            (
                "args.minCandidateNodesPercentage: expected a number above 0 here or in "
                "minCandidateNodesAbsolute, got 0"
            ),
        ),
        (
            (
                "profiles: [{pluginConfig: [{name: VolumeBinding, args: {shape: [{utilization: 0, "
                "score: 0}]}}]}]"
            ),
            "args.shape: expected no shape: the capacity of storage is not scored",
        ),
        (
            "profiles: [{pluginConfig: [{name: DynamicResources, args: {filterTimeout: soon}}]}]",
            "args.filterTimeout: expected a duration such as 90s",
        ),
        (
            "extenders: [{urlPrefix: extender}]",
            "extenders[0].urlPrefix: expected a URL with http:// or https://, got 'extender'",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', prioritizeVerb: p}]",
            (
                "extenders[0].weight: expected a weight above 0 for an extender that prioritizes, "
                "got nothing"
            ),
        ),
        (
            (
                "extenders: [{urlPrefix: 'http://x', bindVerb: b}, {urlPrefix: 'http://y', "
                "bindVerb: "
                "b}]"
            ),
            "extenders[1].bindVerb: expected one extender with a bindVerb, got 'b'",
        ),
        (
            "extenders: [{urlPrefix: 'http://x', managedResources: [{name: cpu}]}]",
            "extenders[0].managedResources[0].name: expected the name of an extended resource",
        ),
        (
            "extenders: [{urlPrefix: 'https://x', tlsConfig: {caData: abc}}]",
            (
                "extenders[0].tlsConfig.caData: expected caFile, for caData is not supported, "
                "got 'abc'"
            ),
        ),
        (
            "extenders: [{urlPrefix: 'http://x', httpTimeout: -1s}]",
            "httpTimeout: expected a duration that is not below 0",
        ),
    ],
)
def test_what_means_nothing_is_refused_by_name_and_line(body: str, said: str) -> None:
    errors = refused(body)
    assert len(errors) == 1, errors
    assert said in errors[0]
    assert "\n" not in errors[0]


def test_profiles_that_sort_the_queue_in_two_ways_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All pods wait in one queue."""
    known = known_plugins() | {"Fifo": KnownPlugin("Fifo", ("queueSort",), by_default=False)}
    monkeypatch.setattr("wharfinger.manifests.kubernetes.scheduler.known_plugins", lambda: known)
    (error,) = refused(
        """
        profiles:
        - schedulerName: a
        - schedulerName: b
          plugins: {queueSort: {disabled: [{name: "*"}], enabled: [{name: Fifo}]}}
        """
    )
    assert error.startswith(
        "scheduler.yaml:7: profiles[1].plugins.queueSort: expected the queueSort plugin of the "
        "first profile, PrioritySort"
    )


# The older shapes.

OLD = "apiVersion: v1\nkind: Policy\n"
PROVIDER = "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\n"


def test_predicates_and_priorities_become_plugins() -> None:
    (found,) = config(
        """
        predicates:
        - {name: PodFitsHostPorts}
        - {name: PodFitsResources}
        - {name: MatchNodeSelector}
        - {name: HostName}
        - {name: in-a-rack, argument: {labelsPresence: {labels: [rack], presence: true}}}
        priorities:
        - {name: MostRequestedPriority, weight: 2}
        - {name: SelectorSpreadPriority, weight: 4}
        - {name: EqualPriority, weight: 1}
        hardPodAffinitySymmetricWeight: 10
        alwaysCheckAllPredicates: true
        """,
        OLD,
    ).profiles
    assert [use.name for use in found.at("filter")] == [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "Devices",
        "Dynamic",
    ]
    assert weights(found) == {
        "NodeResourcesFit": 2,
        "PodTopologySpread": 4,
        "Devices": 1,
        "Dynamic": 3,
    }
    assert found.arguments.fit.strategy == "MostAllocated"
    assert found.arguments.inter_pod.hard_weight == 10
    added = found.arguments.node_affinity.required
    assert added is not None
    assert added[0].matches({"rack": "7"}, "oslo")
    assert not added[0].matches({}, "oslo")
    assert [use.name for use in found.at("queueSort")] == ["PrioritySort"]


def test_a_policy_without_lists_means_the_providers_and_an_empty_list_none() -> None:
    (named,) = config("", OLD).profiles
    (provided,) = config("algorithmSource: {provider: DefaultProvider}", PROVIDER).profiles
    assert named == provided
    (bare,) = config("predicates: []\npriorities: []", OLD).profiles
    assert [use.name for use in bare.at("filter")] == [
        "NodeUnschedulable",
        "TaintToleration",
        "Devices",
        "Dynamic",
    ]
    assert weights(bare) == {"Devices": 1, "Dynamic": 3}


def test_the_autoscalers_provider_fills_nodes_up() -> None:
    (found,) = config(
        """
        schedulerName: tight
        algorithmSource: {provider: ClusterAutoscalerProvider}
        disablePreemption: true
        hardPodAffinitySymmetricWeight: 3
        """,
        PROVIDER,
    ).profiles
    assert found.name == "tight"
    assert found.arguments.fit.strategy == "MostAllocated"
    assert found.arguments.inter_pod.hard_weight == 3
    assert found.at("postFilter") == ()
    assert weights(found)["InterPodAffinity"] == 1


def test_a_ratio_priority_brings_its_shape_and_extenders_their_old_spelling() -> None:
    found = config(
        """
        priorities:
        - name: mine
          weight: 5
          argument:
            requestedToCapacityRatioArguments:
              shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
              resources: [{name: example.com/gpu, weight: 3}]
        extenders: [{urlPrefix: "http://x", filterVerb: f,
         enableHttps: false, httpTimeout: 100000000}]
        """,
        OLD,
    )
    fit = found.profiles[0].arguments.fit
    assert (fit.strategy, fit.resources) == (
        "RequestedToCapacityRatio",
        (WeightedResource("example.com/gpu", 3),),
    )
    assert weights(found.profiles[0])["NodeResourcesFit"] == 5
    assert found.extenders[0].timeout_ms == 100


@pytest.mark.parametrize(
    ("body", "head", "said"),
    [
        (
            "predicates: [{name: CheckMoon}]",
            OLD,
            "predicates[0].name: expected one of the predicates CheckNodeUnschedulable",
        ),
        (
            "priorities: [{name: NodePreferAvoidPodsPriority, weight: 1}]",
            OLD,
            "priorities[0].name: expected one of the priorities TaintTolerationPriority",
        ),
        ("priorities: [{name: EqualPriority}]", OLD, "priorities[0].weight: expected a value"),
        (
            (
                "priorities: [{name: LeastRequestedPriority, weight: 1}, {name: "
                "MostRequestedPriority, weight: 1}]"
            ),
            OLD,
            (
                "priorities[1].name: expected one priority of requested resources "
                "(LeastRequestedPriority is another)"
            ),
        ),
        (
            "priorities: [{name: RequestedToCapacityRatioPriority, weight: 1}]",
            OLD,
            "priorities[0].argument: expected requestedToCapacityRatioArguments",
        ),
        (
            "predicates: [{name: a, argument: {serviceAffinity: {labels: [zone]}}}]",
            OLD,
            (
                "predicates[0].argument.serviceAffinity: expected labelsPresence "
                "(serviceAffinity is "
                "not supported)"
            ),
        ),
        (
            (
                "priorities: [{name: a, weight: 1, argument: {labelPreference: {label: zone, "
                "presence: true}}}]"
            ),
            OLD,
            (
                "priorities[0].argument.labelPreference: expected "
                "requestedToCapacityRatioArguments "
                "(labelPreference is not supported)"
            ),
        ),
        (
            "algorithmSource: {provider: MyProvider}",
            PROVIDER,
            (
                "algorithmSource.provider: expected 'DefaultProvider' or "
                "'ClusterAutoscalerProvider', got 'MyProvider'"
            ),
        ),
        (
            "algorithmSource: {policy: {file: {path: /policy.cfg}}}",
            PROVIDER,
            (
                "algorithmSource.policy: expected a provider: a Policy is applied as a manifest of "
                "its own"
            ),
        ),
        ("plugins: {}", PROVIDER, "plugins: expected no plugins beside an algorithm provider"),
    ],
)
def test_an_older_shape_is_refused_by_name_too(body: str, head: str, said: str) -> None:
    (error,) = refused(body, head)
    assert said in error


# As a policy of the plane.


def test_every_shape_with_everything_that_can_be_said_is_taken() -> None:
    manifests = load_files([SCHEDULERS]).manifests
    assert [m.kind.api_version.rpartition("/")[2] + " " + m.kind.kind for m in manifests] == [
        "v1 KubeSchedulerConfiguration",
        "v1beta2 KubeSchedulerConfiguration",
        "v1alpha1 KubeSchedulerConfiguration",
        "v1 Policy",
    ]
    for manifest in manifests:
        assert compile_manifests([manifest]).errors == ()
        assert compile_manifests([manifest]).unacted == ()
        assert compile_deletions([manifest]).errors == ()


def test_all_shapes_are_one_policy() -> None:
    keys = {
        policy.key for head in (HEAD, OLD, PROVIDER) if (policy := compiled(head)[0]) is not None
    }
    assert keys == {"KubeSchedulerConfiguration//default"}


def test_two_of_them_in_one_apply_are_refused() -> None:
    _, errors = compiled(HEAD + "---\n" + OLD)
    assert len(errors) == 1
    assert "KubeSchedulerConfiguration default" in errors[0]


def test_what_was_applied_in_one_shape_can_be_removed_in_another() -> None:
    loaded = load_manifests(OLD, "policy.yaml")
    made = compile_deletions(loaded.manifests)
    assert [f.data for f in made.facts] == [PolicyRemoved("KubeSchedulerConfiguration", "default")]


def test_arguments_left_out_are_the_defaults() -> None:
    assert (
        profile("profiles: [{pluginConfig: [{name: NodeResourcesFit}]}]").arguments == Arguments()
    )
