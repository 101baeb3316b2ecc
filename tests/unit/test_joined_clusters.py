"""Joined clusters are files of their own, readable by their owner only. One that is broken takes
no other with it."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from wharfinger.domain.actuation import MODES, Mode, Verb, possible_verbs
from wharfinger.runtime.kube.joined import (
    JoinedCluster,
    JoinedError,
    entry_text,
    joined_clusters,
    read_joined,
    remove_joined,
    secret_of,
    secrets_of,
    store_joined,
)
from wharfinger.runtime.kube.kubeconfig import (
    SERVICE_ACCOUNT,
    Access,
    ExecPlugin,
    access_of,
    in_cluster,
    kubeconfig_of,
)
from wharfinger.runtime.settings import load_settings

SECRET = "t0ken-of-a-cluster"
V1 = "client.authentication.k8s.io/v1"

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789-*&!@:#'\"", min_size=1, max_size=12)
plugins = st.builds(
    ExecPlugin,
    st.just(V1),
    st.sampled_from(["login", "/usr/bin/login"]),
    st.lists(words, max_size=3).map(tuple),
    st.lists(st.tuples(words, words), max_size=2).map(tuple),
    st.booleans(),
    words,
)


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    with_certificate = draw(st.booleans())
    return Access(
        server=draw(st.sampled_from(["https://oslo:6443", "https://hub/apis/x/proxy"])),
        authority=draw(st.none() | st.binary(min_size=1)),
        server_name=draw(st.just("") | words),
        proxy=draw(st.sampled_from(["", "http://user:pass@proxy:3128"])),
        certificate=draw(st.binary(min_size=1)) if with_certificate else None,
        key=draw(st.binary(min_size=1)) if with_certificate else None,
        token=draw(st.just("") | words),
        token_file=draw(st.sampled_from([None, Path("/var/run/token")])),
        plugin=draw(st.none() | plugins),
    )


modes_and_verbs = st.sampled_from(MODES).flatmap(
    lambda mode: st.tuples(
        st.just(mode), st.sets(st.sampled_from(possible_verbs(mode, False) or ("",))).map(tuple)
    ).map(lambda both: (both[0], tuple(verb for verb in both[1] if verb)))
)

joined = st.builds(
    JoinedCluster,
    name=st.sampled_from(["oslo", "a.b-c", "0"]),
    access=accesses(),
    uid=st.sampled_from(["", "4f6f5f0e"]),
    secret_namespaces=st.sets(st.sampled_from(["shop", "a-1", "0"])).map(sorted).map(tuple),
    version=st.sampled_from(["", "v1.36.3"]),
    labels=st.dictionaries(words, words, max_size=2),
    lease_s=st.none() | st.integers(1, 300),
    shadow_of=st.lists(words, min_size=1, max_size=2).map(tuple),
    write_access=st.none() | accesses(),
)


@given(accesses())
def test_a_written_kubeconfig_is_read_as_the_same_access(access: Access) -> None:
    assert access_of(kubeconfig_of(access), Path("/somewhere/config")) == access


@given(cluster=joined, both=modes_and_verbs)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_stored_is_read_again(
    cluster: JoinedCluster, both: tuple[Mode, tuple[Verb, ...]], tmp_path: Path
) -> None:
    cluster = replace(cluster, mode=both[0], verbs=both[1])
    file = store_joined(tmp_path, cluster)
    assert read_joined(file) == cluster


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "clusters"
    before = os.umask(0)
    try:
        file = store_joined(directory, JoinedCluster("oslo", Access("https://oslo", token=SECRET)))
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [path.name for path in directory.iterdir()] == ["oslo.yaml"]


def test_a_broken_file_takes_no_other_with_it_and_its_error_quotes_nothing(tmp_path: Path) -> None:
    store_joined(tmp_path, JoinedCluster("oslo", Access("https://oslo")))
    for name, text in {
        "alias": f"kubeconfig: *{SECRET}",
        "tag": f"kubeconfig: !{SECRET}",
        "wrong": f"mode: [{SECRET}]",
        "unknown": "kubeconfg: {}",
        "nothing": "mode: observe",
        "no-user": f"kubeconfig: {{users: [{{name: a, user: {{token: [{SECRET}]}}}}]}}",
        "Capital": "mode: observe",
        "away": "kubeconfig: not-there.config",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    found = joined_clusters(tmp_path)
    assert list(found.clusters) == ["oslo"]
    assert sorted(found.errors) == sorted(
        ["alias", "tag", "wrong", "unknown", "nothing", "no-user", "Capital", "away"]
    )
    assert not any(SECRET in error or "\n" in error for error in found.errors.values())


def test_a_path_in_place_of_a_kubeconfig_is_read_each_time(tmp_path: Path) -> None:
    access = Access("https://oslo", token="first")
    (tmp_path / "oslo.config").write_text(_yaml(kubeconfig_of(access)))
    (tmp_path / "oslo.yaml").write_text("kubeconfig: oslo.config\n")
    assert read_joined(tmp_path / "oslo.yaml").access == access
    (tmp_path / "oslo.config").write_text(_yaml(kubeconfig_of(Access("https://other"))))
    assert read_joined(tmp_path / "oslo.yaml").access.server == "https://other"


def test_a_secret_holds_the_same_file(tmp_path: Path) -> None:
    cluster = JoinedCluster("oslo", Access("https://oslo", token=SECRET), mode="shadow")
    secret = secret_of(cluster, "wharfinger-system")
    ((name, text),) = secret["stringData"].items()  # type: ignore[attr-defined]
    (tmp_path / name).write_text(text)
    assert read_joined(tmp_path / name) == cluster


def test_leaving_removes_the_file(tmp_path: Path) -> None:
    store_joined(tmp_path, JoinedCluster("oslo", Access("https://oslo")))
    assert remove_joined(tmp_path, "oslo")
    assert not remove_joined(tmp_path, "oslo")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../oslo", "", "-a", "A", "a/b", "a" * 254, "a\n"])
def test_a_name_that_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(JoinedError):
        store_joined(tmp_path, JoinedCluster(name, Access("https://oslo")))


def test_nothing_secret_is_printed_of_a_cluster() -> None:
    plugin = ExecPlugin(V1, "login", (SECRET,), (("TOKEN", SECRET),))
    access = Access("https://oslo", proxy=f"http://u:{SECRET}@p", token=SECRET, plugin=plugin)
    assert SECRET not in repr(JoinedCluster("oslo", access))


def test_the_directory_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({"data_dir": tmp_path}).clusters_dir() == tmp_path / "clusters"
    monkeypatch.setenv("WHARFINGER_CLUSTERS", str(tmp_path / "elsewhere"))
    assert load_settings({"data_dir": tmp_path}).clusters_dir() == tmp_path / "elsewhere"


def _yaml(value: object) -> str:
    from io import StringIO

    text = StringIO()
    YAML(typ="safe", pure=True).dump(value, text)
    return text.getvalue()


@pytest.mark.parametrize("mode", ["observe", "shadow", "fleet"])
def test_a_verb_that_the_mode_does_not_allow_is_an_error(mode: str, tmp_path: Path) -> None:
    (tmp_path / "oslo.yaml").write_text(
        f"mode: {mode}\nverbs: [nodes]\nkubeconfig: {{}}\n", encoding="utf-8"
    )
    with pytest.raises(JoinedError, match=f"oslo.yaml: verbs: nodes in mode {mode}"):
        read_joined(tmp_path / "oslo.yaml")


def test_without_verbs_no_mode_writes() -> None:
    for mode in MODES:
        assert JoinedCluster("oslo", Access("https://oslo"), mode).verbs_in_force == ()


def test_a_pod_finds_its_account_where_it_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "ca.crt").write_bytes(b"ca")
    cluster = JoinedCluster("oslo", in_cluster(mounted), in_cluster=True)
    assert cluster.access.token_file == mounted / "token"
    assert read_joined(store_joined(tmp_path, cluster)) == cluster
    usual = replace(cluster, access=replace(cluster.access, token_file=SERVICE_ACCOUNT / "token"))
    assert "serviceAccount" not in entry_text(usual)


def test_a_mounted_account_is_for_a_pod_only(tmp_path: Path) -> None:
    file = tmp_path / "oslo.yaml"
    file.write_text("kubeconfig: elsewhere\nserviceAccount: /mounted\n")
    with pytest.raises(JoinedError, match="serviceAccount: expected inCluster: true with it"):
        read_joined(file)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Shop", "expected the name of a namespace, got 'Shop'"),
        ("a/b", "expected the name of a namespace, got 'a/b'"),
        ("a" * 64, "expected the name of a namespace"),
        ("kube-system", "kube-system: its Secrets are of its cluster alone"),
        ("wharfinger-system", "wharfinger-system: its Secrets are of its cluster alone"),
    ],
)
def test_secrets_are_copied_in_namespaces_of_workloads_only(
    name: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "oslo.yaml").write_text(
        f"mode: act\nverbs: [copy]\nsecretNamespaces: [{name}]\ninCluster: true\n"
    )
    with pytest.raises(JoinedError, match=f"oslo.yaml: secretNamespaces: {why}"):
        read_joined(tmp_path / "oslo.yaml")


def test_secrets_are_copied_where_hub_and_member_both_allow_it() -> None:
    access = Access("https://oslo")
    member = JoinedCluster(
        "oslo", access, "act", verbs=("copy",), secret_namespaces=("a", "b", "c")
    )
    hub = JoinedCluster(
        "hub", access, "fleet", hub=True, verbs=("templates",), secret_namespaces=("b", "c", "d")
    )
    assert secrets_of(member, hub) == ("b", "c")
    assert secrets_of(replace(member, secret_namespaces=()), hub) == ()
    assert secrets_of(member, replace(hub, secret_namespaces=())) == (), "the default"
    assert replace(member, verbs=("bind",)).secrets_in_force == ()
    assert replace(member, mode="observe").secrets_in_force == ()
