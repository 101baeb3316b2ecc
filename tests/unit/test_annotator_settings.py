"""What the annotator makes of the settings, and what it says of those that cannot work."""

from __future__ import annotations

from pathlib import Path

from wharfinger.runtime.settings import load_settings
from wharfinger_annotator.app import prometheus_settings
from wharfinger_annotator.prometheus import Matcher


def test_every_setting_of_the_connection_reaches_the_client() -> None:
    made = prometheus_settings(
        load_settings(
            {
                "prometheus_url": "https://prometheus:9090/",
                "prometheus_bearer": "t0ken",
                "prometheus_ca_file": "ca.pem",
                "prometheus_cert_file": "client.pem",
                "prometheus_key_file": "client.key",
                "prometheus_insecure": "true",
                "prometheus_cluster_label": "member",
                "prometheus_matchers": 'job="node-exporter",env=~"prod.*"',
                "prometheus_connect_timeout_s": "1",
                "prometheus_timeout_s": "2",
            }
        )
    )
    assert made is not None
    assert (made.url, made.bearer, made.insecure_skip_verify) == (
        "https://prometheus:9090",
        "t0ken",
        True,
    )
    assert (made.ca_file, made.cert_file, made.key_file) == (
        Path("ca.pem"),
        Path("client.pem"),
        Path("client.key"),
    )
    assert (made.connect_timeout_s, made.timeout_s) == (1.0, 2.0)
    assert made.matchers == (Matcher("job", "node-exporter"), Matcher("env", "prod.*", "=~"))
    assert made.promql("oslo", "load1") == 'load1{member="oslo",job="node-exporter",env=~"prod.*"}'


def test_without_an_address_nothing_is_asked() -> None:
    assert prometheus_settings(load_settings({"prometheus_cluster_label": "member"})) is None
