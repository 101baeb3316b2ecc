"""CEL over clusters: the language, what Kubernetes adds to it, and that nothing in it runs away."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wharfinger.domain.cluster import ManagedClusterFacts
from wharfinger.domain.selection import ClusterScores, ScoreValue
from wharfinger.domain.value import canonical
from wharfinger.engine.cluster_sets.expressions import LENGTH_MAX, ExpressionError, compiled
from wharfinger.engine.cluster_sets.fleet import OcmClusterFacts

MANIFEST = {
    "apiVersion": "cluster.open-cluster-management.io/v1",
    "kind": "ManagedCluster",
    "metadata": {
        "name": "oslo",
        "labels": {"env": "prod", "tier": "gold"},
        "annotations": {"info": '{"zone": "a", "racks": 4}', "address": "10.2.3.4"},
    },
    "status": {
        "allocatable": {"memory": "16384Mi", "cpu": 8},
        "version": {"kubernetes": "v1.31.0"},
        "clusterClaims": [{"name": "region", "value": "eu-1"}, {"name": "site", "value": "north"}],
    },
}
OSLO = OcmClusterFacts(
    "oslo",
    managed=ManagedClusterFacts(manifest=canonical(MANIFEST).decode()),
    scores={"load": ClusterScores((ScoreValue("cpu", 50), ScoreValue("disk", -20)))},
)


def holds(text: str) -> bool:
    return compiled(text).holds(OSLO)


@pytest.mark.parametrize(
    "text",
    [
        # the object
        'managedCluster.metadata.labels["env"] == "prod"',
        'managedCluster.metadata.labels.env in ["prod", "dev"]',
        'has(managedCluster.metadata.labels) && !("x" in managedCluster.metadata.labels)',
        'managedCluster.status.clusterClaims.exists(c, c.name == "region" && c.value == "eu-1")',
        "!managedCluster.spec.hubAcceptsClient",
        'managedCluster.metadata.?foo.orValue("none") == "none"',
        'managedCluster.metadata.annotations["info"].parseJSON().zone == "a"',
        'managedCluster.metadata.annotations["info"].parseJSON().racks == 4',
        # scores
        'managedCluster.scores("load").exists(s, s.name == "cpu" && s.value >= 50)',
        'managedCluster.scores("load").filter(s, s.value < 0).size() == 1',
        # quantities
        "quantity(managedCluster.status.allocatable.memory) == quantity('16Gi')",
        "managedCluster.status.allocatable.memory == '16Gi'",
        "quantity(managedCluster.status.allocatable.memory).isGreaterThan(quantity('10Gi'))",
        "quantity('500m').isLessThan(quantity('1'))",
        "quantity('1.5').compareTo(quantity('1500m')) == 0",
        "quantity('1').add(quantity('500m')).sub(1) == quantity('0.5')",
        (
            "quantity('-2').sign() == -1 && quantity('3').asInteger() == 3 && "
            "!quantity('0.5').isInteger()"
        ),
        "quantity('50k').asApproximateFloat() == 50000.0",
        "isQuantity('1Gi') && !isQuantity('one')",
        # versions
        "semver(managedCluster.status.version.kubernetes.substring(1)).isGreaterThan(semver('1.30.0'))",
        "semver('v1.31', true) == semver('1.31.0')",
        (
            "semver('1.0.0-rc.2').isLessThan(semver('1.0.0-rc.11')) && "
            "semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))"
        ),
        (
            "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && "
            "semver('1.2.3').patch() "
            "== 3"
        ),
        "isSemver('1.0.0') && !isSemver('v1.0.0') && isSemver('v1.0', true)",
        # addresses
        "ip(managedCluster.metadata.annotations['address']).family() == 4",
        (
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && "
            "!cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))"
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked() == "
            "cidr('10.0.0.0/8')"
        ),
        "cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('10.1.2.3/8').prefixLength() == 8",
        (
            "ip('::1').isLoopback() && ip('0.0.0.0').isUnspecified() && "
            "ip('fe80::1').isLinkLocalUnicast()"
        ),
        "ip('224.0.0.1').isLinkLocalMulticast() && ip('10.0.0.1').isGlobalUnicast()",
        "isIP('1.2.3.4') && !isIP('1.2.3') && ip.isCanonical('::1') && !ip.isCanonical('0:0::1')",
        "isCIDR('::/0') && !isCIDR('10.0.0.0')",
        # URLs
        "url('https://me@hub.example:8443/a%20b?x=1&x=2').getHost() == 'hub.example:8443'",
        (
            "url('https://hub.example:8443/').getHostname() == 'hub.example' && "
            "url('https://hub/').getPort() == ''"
        ),
        (
            "url('https://hub/a?x=1&x=2').getQuery()['x'] == ['1', '2'] && "
            "url('/a/b').getEscapedPath() == '/a/b'"
        ),
        "isURL('https://hub') && !isURL('hub')",
        # formats
        "!format.dns1123Label().validate('a-name').hasValue()",
        "format.dns1123Label().validate('No Name').hasValue()",
        "!format.named('uuid').value().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "!format.named('nothing').hasValue()",
        # expressions, lists, strings
        "'" + "a" * 60 + "b'.find('(a+)+c') == ''",  # in linear time
        " || ".join(["managedCluster.metadata.name == 'bergen'"] * 60) + " || true",
        "'v1.31.0'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "'a1b22c3'.findAll('[0-9]+', 2).size() == 2",
        "[1, 2, 3].isSorted() && ![2, 1].isSorted() && [1, 2, 3].sum() == 6",
        "[3, 1, 2].min() == 1 && ['a', 'c', 'b'].max() == 'c'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && ['a'].indexOf('b') == -1",
        (
            "'abcabc'.indexOf('b') == 1 && 'abcabc'.indexOf('b', 2) == 4 && "
            "'abcabc'.lastIndexOf('b') == 4"
        ),
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "['a', 'b'].join('-') == 'a-b' && 'aXbX'.replace('X', 'y', 1) == 'aybX'",
        (
            "' Å Ab '.trim().lowerAscii() == 'Å ab' && 'ab'.upperAscii() == 'AB' && "
            "'abc'.charAt(1) "
            "== 'b'"
        ),
        "'%s has %d of %.1f'.format(['oslo', 3, 2.25]) == 'oslo has 3 of 2.2'",
        "'%s'.format([{'b': 1, 'a': 2.0}]) == '{a: 2, b: 1}'",
        "'%s'.format([{'b': 1, 2: true, false: null}]) == '{2: true, b: 1, false: null}'",
        "strings.quote('a\"b') == '\"a\\\\\"b\"' && 'abc'.reverse() == 'cba'",
    ],
)
def test_what_holds_of_the_cluster(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        'managedCluster.metadata.labels["nowhere"] != "prod"',  # an error, not a difference
        'managedCluster.scores("nothing").all(s, s.value > 0)',
        "managedCluster.metadata.name",
        "1",
        "false",
        "semver(managedCluster.status.version.kubernetes).isGreaterThan(semver('1.30.0'))",
        "quantity('one').isGreaterThan(quantity('0'))",
        "'abc'.charAt(7) == ''",
        "managedCluster.metadata.annotations['address'].parseJSON().x == 1",
        "ip('::ffff:1.2.3.4').family() == 6",
        "1 / 0 == 1",
    ],
)
def test_an_error_or_anything_but_true_is_no_match(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("((", "Syntax error: mismatched input '<EOF>'"),
        ("managedCluster.foo()", "undeclared reference to 'foo'"),
        ('"a" + 1 == 2', "found no matching overload for '_+_' applied to '(string, int)'"),
        (
            "quantity('1') == 1",
            "found no matching overload for '_==_' applied to '(kubernetes.Quantity, int)'",
        ),
        (
            "quantity('1').isGreaterThan(semver('1.0.0'))",
            "found no matching overload for 'isGreaterThan'",
        ),
        ("now() > 1", "undeclared reference to 'now'"),
        ("x" * (LENGTH_MAX + 1), "exceeds limit"),
    ],
)
def test_what_does_not_compile_is_told(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as told:
        compiled(text)
    assert said in str(told.value)
    assert "INVALID_ARGUMENT" not in str(told.value)


def test_an_unknown_name_is_told_by_its_first_part_and_place() -> None:
    with pytest.raises(ExpressionError) as told:
        compiled('true &&  cluster.metadata.name == "x" || other')
    assert str(told.value) == (
        "ERROR: <input>:1:10: undeclared reference to 'cluster' (in container '')\n"
        ' | true &&  cluster.metadata.name == "x" || other\n'
        " | .........^\n"
        "ERROR: <input>:1:42: undeclared reference to 'other' (in container '')\n"
        ' | true &&  cluster.metadata.name == "x" || other\n'
        " | .........................................^"
    )


TEN = "[1,2,3,4,5,6,7,8,9,10]"


@pytest.mark.parametrize(
    "text",
    [
        f"{TEN}.all(a,{TEN}.all(b,{TEN}.all(c,{TEN}.all(d,{TEN}.all(e,{TEN}.all(f,a+b+c+d+e+f>0))))))",
        "'a'" + ".replace('a', 'aaaaaaaaaaaaaaaa')" * 20 + " != ''",
        "['a']" + ".map(x, x + x)" * 20 + ".size() == 1",
    ],
)
def test_what_is_too_dear_is_no_match_and_ends(text: str) -> None:
    assert not holds(text)


def test_processes_that_meet_no_expression_do_not_load_the_language() -> None:
    code = (
        "import sys, wharfinger.engine.cluster_sets.select; sys.exit('cel_expr_python' in "
        "str(list(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
