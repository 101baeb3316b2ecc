"""What a process was asked to do: flags, environment, one file, the running plane, defaults; in
that order.

Settings are parsed once, at the start, into one frozen value; nothing below reads the environment
again. A wrong value is never guessed at: every bad field gives one line that names the field, where
the value came from, and what was expected, and the command line ends with exit code 2. Next:
`backends`, made from these by `Settings.backend()`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as SourceError

from wharfinger.runtime.backends import (
    CAPABILITIES,
    Backend,
    BrokerProfile,
    KafkaSecurity,
    SaslMechanism,
    SecurityProtocol,
    async_database_url,
    checked_bootstrap,
)
from wharfinger.runtime.deadlines import Deadlines
from wharfinger.runtime.plane import DEFAULT_DATA_DIR, PLANE_FILE, PlaneError, read_plane
from wharfinger.runtime.plane import ENV_PREFIX as ENV_PREFIX

FLEET_SHARDS = 8
"""Of a new plane on a broker of its own: so many processes can choose clusters at the same time.
What that costs is in docs/performance-history.md."""

_DEADLINES = Deadlines()


class SettingsError(Exception):
    """One line a bad field, in `lines`. The command line prints them and exits with 2."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def _http_url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("expected http://host:port or https://host:port")
    return value.rstrip("/")


MatchOperator = Literal["=", "!=", "=~", "!~"]


def clear_text_is_safe(url: str) -> bool:
    """Whether it is an address of HTTP that no other machine can listen to or answer for."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    return parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")


def _issuer(value: str) -> str:
    """As the tokens have it, to the letter."""
    if not clear_text_is_safe(value) or "?" in value or "#" in value:
        raise ValueError("expected https://host/path, as the provider writes it into its tokens")
    return value


SIGNATURES = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""What a token of an OpenID provider may be signed by: a private key. With HMAC, who confuses them
would take the public key for the secret."""


def _algorithms(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in SIGNATURES:
            raise ValueError(f"expected some of {', '.join(SIGNATURES)}, got {name!r}")
    return ",".join(names)


def _networks(value: str) -> str:
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        try:
            network = ip_network(name)
        except ValueError:
            raise ValueError(f"expected addresses such as 10.0.0.0/8, got {name!r}") from None
        if network.prefixlen == 0:
            raise ValueError(f"expected addresses of proxies, got all: {name!r}")
    return ",".join(names)


class LabelMatcher(NamedTuple):
    """One label matcher of PromQL: `job="node-exporter"`."""

    label: str
    op: MatchOperator
    value: str


_MATCHER = re.compile(
    r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\["\\n])*)"\s*(?:,|$)'
)
_OPERATORS: Mapping[str, MatchOperator] = {"=": "=", "!=": "!=", "=~": "=~", "!~": "!~"}
_ESCAPED = re.compile(r'\\(["\\n])')


def _matchers(value: object) -> object:
    """`job="node-exporter",env=~"prod.*"`, as it stands between the braces of a PromQL selector."""
    if not isinstance(value, str):
        return value
    found: list[LabelMatcher] = []
    place = 0
    while place < len(value):
        match = _MATCHER.match(value, place)
        if match is None:
            raise ValueError(
                'expected PromQL label matchers such as job="node-exporter",env=~"prod.*"'
            )
        label, op, text = match.groups()
        plain = _ESCAPED.sub(lambda escaped: escaped[1].replace("n", "\n"), text)
        found.append(LabelMatcher(label, _OPERATORS[op], plain))
        place = match.end()
    return tuple(found)


def _believed(value: str) -> str:
    if value:  # without a list the event types need not be loaded
        from wharfinger.runtime.believed_sources import BelievedSources

        BelievedSources.parse(value)
    return value


def _checkpoint_place(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if separator and (not scheme or not rest):
        raise ValueError("expected a file, kafka://TOPIC or a URL such as s3://bucket/path")
    if separator and scheme == "kafka" and not _TOPIC.fullmatch(rest):
        raise ValueError(f"expected kafka://TOPIC with the name of a topic, got {rest!r}")
    return value


_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Port = Annotated[int, Field(ge=0, le=65535)]
CheckpointPlace = Annotated[str, AfterValidator(_checkpoint_place)]
Bootstrap = Annotated[str, AfterValidator(checked_bootstrap)]
DatabaseUrl = Annotated[str, AfterValidator(async_database_url)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Issuer = Annotated[str, AfterValidator(_issuer)]
Algorithms = Annotated[str, AfterValidator(_algorithms)]
Networks = Annotated[str, AfterValidator(_networks)]
LabelName = Annotated[str, Field(pattern=r"^([a-zA-Z_][a-zA-Z0-9_]*)?$")]
Believed = Annotated[str, AfterValidator(_believed)]
Matchers = Annotated[tuple[LabelMatcher, ...], NoDecode, BeforeValidator(_matchers)]


class Settings(BaseSettings):
    """Every knob, once. The environment variable is the field's name in capitals behind
    `WHARFINGER_`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    # where things are
    config: Path | None = None  # YAML or TOML file with any of these fields
    data_dir: Path = DEFAULT_DATA_DIR
    kafka: Bootstrap | None = None  # unset: the plane that is up, else the embedded broker
    database: DatabaseUrl | None = None  # unset: the plane that is up, else the embedded database
    broker: BrokerProfile = "durable"  # what the broker of `kafka` promises
    broker_boot_id: str = ""  # names the life of a broker that forgets
    database_identity: str = (
        ""  # which database `up` has found; a service process works with no other
    )
    clusters: Path | None = None  # one file a joined cluster; unset: `clusters` of the data dir
    server: HttpUrl | None = None  # commands: the HTTP API that is asked instead of the database
    token_file: Path | None = None  # commands: the token for it
    owner_pid: NonNegativeInt = (
        0  # the plane ends when this process does; 0: it outlives every other process
    )

    # how the plane runs
    # `auto`: `two` where the machine has two cores for it, else `one`
    processes: Literal["auto", "one", "two", "each"] = "auto"
    # fixed when the ledger begins: partitions of bindings and outcomes; unset: as the ledger has it
    fleet_shards: PositiveInt | None = None
    cluster_partitions: PositiveInt = 4  # fixed for life: partitions of the topics keyed by cluster
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    http_host: str = "127.0.0.1"
    http_port: Port = 0  # 0 takes a free one
    api_requests_per_s: PositiveFloat = 100.0  # of one token, at each process of the API
    api_requests_burst: PositiveInt = 500  # requests that a token may make at once
    # who comes to the API without a token of the plane, and what they may do
    api_grants: Path | None = None
    api_oidc_issuer: Issuer | None = None
    api_oidc_audience: str = ""
    api_oidc_algorithms: Algorithms = "RS256,ES256"
    api_oidc_name_claim: str = "sub"
    api_oidc_groups_claim: str = "groups"
    api_oidc_ca_file: Path | None = None
    api_tls_cert_file: Path | None = None  # the API is served with TLS
    api_tls_key_file: Path | None = None
    api_tls_client_ca_file: Path | None = None  # clients may show certificates that it has signed
    api_proxies: Networks = ""  # from where the header Client-Cert counts
    api_kubernetes: Path | None = None  # kubeconfig of whom tokens are asked, or `in-cluster`
    api_kubernetes_audience: str = "wharfinger"
    api_webhook_key_file: Path | None = None  # keys that seal secrets of webhooks, one a line
    api_webhook_networks: Networks = ""  # private addresses that webhooks may be sent to
    ledger_partition_days: PositiveInt = 30  # days of history that can be retired at once
    # SOURCE=TOPIC or SOURCE=TYPE with commas: what others than the plane may send; empty: all
    believed_sources: Believed = ""
    # where the plane ships signed checkpoints to: a file, kafka://TOPIC, or a URL known to fsspec
    checkpoints: CheckpointPlace = ""
    checkpoint_key: Path | None = None  # signs them: an Ed25519 private key, made by `audit key`
    # so long a change may lie in the ledger without a checkpoint that covers it
    checkpoint_every_s: Annotated[float, Field(gt=0, le=60)] = 30.0
    stalled_after_s: PositiveFloat = (
        30.0  # a service that completes nothing for so long while something waits is not ready
    )
    broker_rss_mb_max: PositiveInt = (
        2048  # the memory broker never frees: the supervisor restarts it beyond this
    )

    # how long the database may take
    database_timeout_s: PositiveFloat = _DEADLINES.call_s  # one statement, a free connection
    # one statement of a long read: verify, replay, export, retention
    database_fetch_timeout_s: PositiveFloat = _DEADLINES.fetch_s
    # a sign of life on the connection that holds a group's lock
    database_lock_timeout_s: PositiveFloat = _DEADLINES.lock_s

    # how the broker is reached
    kafka_security: SecurityProtocol = "PLAINTEXT"
    kafka_sasl_mechanism: SaslMechanism = "PLAIN"
    kafka_username: str | None = None
    kafka_password: SecretStr | None = None
    kafka_ca_file: Path | None = None
    kafka_cert_file: Path | None = None
    kafka_key_file: Path | None = None

    # stage loop
    take_max: PositiveInt = 500  # events of one round at most
    fleet_round_work: NonNegativeInt = (
        150_000  # clusters looked at for bindings in one round, the rest at once; 0: no bound
    )
    fleet_patience_s: NonNegativeInt = (
        30  # so long a request may wait for counts of what was decided just before; 0: never
    )
    cluster_round_work: NonNegativeInt = (
        4_000  # replicas placed, released or refused in one round, the rest at once
    )
    snapshot_rows: PositiveInt = (
        10_000  # inputs and decisions to a whole snapshot; more where the state is large
    )
    delta_rows: PositiveInt = 500  # to a delta: explaining one decision folds about as many at most

    # cluster stage
    node_strategy: Literal["least-allocated", "most-allocated"] = (
        "least-allocated"  # spread over nodes, or fill them up
    )
    batch_idle_s: NonNegativeFloat = 1.0  # a batch is placed when nothing more has come for so long
    batch_max_s: NonNegativeFloat = (
        0.0  # and after so long at the latest; 0: what comes is placed at once
    )
    # where node pools may make nodes: what fits nowhere waits for more before nodes are made
    provision_idle_s: NonNegativeFloat = 1.0  # until no assignment has arrived for so long
    provision_max_s: NonNegativeFloat = 10.0  # and for so long at most; 0: nodes are made at once
    # in clusters whose waiting pods are placed: the replica of a pod that has fitted nowhere for so
    # long is given back to the fleet
    unplaced_after_s: NonNegativeFloat = 20.0  # 0: at once

    # a cluster's own kube-scheduler asking us as its extender: where a binding is written, for who
    # configures bindVerb
    cluster_api_url: HttpUrl | None = (
        None  # of API servers; {cluster} stands for the cluster's name
    )
    cluster_api_token_file: Path | None = None  # read again for every binding: tokens rotate
    cluster_api_ca_file: Path | None = None

    # annotator
    prometheus_url: HttpUrl | None = None  # unset: the annotator only folds hot values
    prometheus_username: str | None = None
    prometheus_password: SecretStr | None = None
    prometheus_bearer: SecretStr | None = None
    prometheus_bearer_file: Path | None = None  # read again for every request: tokens rotate
    prometheus_ca_file: Path | None = None
    prometheus_cert_file: Path | None = (
        None  # our own, where the server asks for one; may hold the key too
    )
    prometheus_key_file: Path | None = None
    prometheus_insecure: bool = False  # take any server's certificate
    prometheus_cluster_label: LabelName = (
        ""  # names the cluster in every series; empty: the server watches only one
    )
    prometheus_matchers: Matchers = ()  # added to every query: job="node-exporter",env=~"prod.*"
    prometheus_connect_timeout_s: PositiveFloat = 3.0
    prometheus_timeout_s: PositiveFloat = 10.0

    # estimator
    capacity_coalesce_ms: PositiveInt = 50  # one capacity event a cluster in this time

    # descheduler
    proposal_repeat_after_s: PositiveInt = (
        60  # a proposal whose cause still stands is made again after this
    )
    stale_after_s: PositiveInt = (
        300  # of a cluster that promised to speak and has not for so long nothing is proposed
    )
    disruption_poll_s: PositiveInt = (
        10  # a cluster that changes is looked at for nodes that can go, this often at most
    )
    disruption_validation_s: NonNegativeInt = (
        15  # and what is found is proposed if it is still found after this
    )
    move_cool_down_s: NonNegativeInt = (
        300  # a workload of which a replica was moved is left where it is for so long
    )

    # collector
    # how often clusters are asked whether their objects may still be read
    rights_review_s: PositiveFloat = 30.0

    # actuator
    actuator_paused: bool = False  # nothing is written to any cluster
    actuator_dry_run: bool = False  # what would be sent is logged, and nothing is sent

    @model_validator(mode="after")
    def _credentials_fit_together(self) -> Self:
        if self.kafka_security.startswith("SASL") and (
            self.kafka_username is None or self.kafka_password is None
        ):
            raise ValueError(
                f"kafka_security={self.kafka_security}: expected kafka_username and "
                "kafka_password too"
            )
        if (self.kafka_cert_file is None) != (self.kafka_key_file is None):
            raise ValueError("kafka_cert_file, kafka_key_file: expected both or neither")
        if self.checkpoint_key is not None and not self.checkpoints:
            raise ValueError("checkpoint_key: expected checkpoints too, where they are shipped to")
        if (self.api_oidc_issuer is None) != (not self.api_oidc_audience):
            raise ValueError("api_oidc_issuer, api_oidc_audience: expected both or neither")
        if (self.api_tls_cert_file is None) != (self.api_tls_key_file is None):
            raise ValueError("api_tls_cert_file, api_tls_key_file: expected both or neither")
        if self.api_tls_client_ca_file is not None and self.api_tls_cert_file is None:
            raise ValueError("api_tls_client_ca_file: expected api_tls_cert_file too")
        if not self.api_kubernetes_audience:
            raise ValueError("api_kubernetes_audience: expected a name, got none")
        if self.api_grants is None:
            for name in ("api_oidc_issuer", "api_tls_client_ca_file", "api_kubernetes"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}: expected api_grants too, which gives roles")
            if self.api_proxies:
                raise ValueError("api_proxies: expected api_grants too, which gives roles")
        if (self.prometheus_username is None) != (self.prometheus_password is None):
            raise ValueError("prometheus_username, prometheus_password: expected both or neither")
        if self.prometheus_key_file is not None and self.prometheus_cert_file is None:
            raise ValueError("prometheus_key_file: expected prometheus_cert_file too")
        ways = [self.prometheus_username, self.prometheus_bearer, self.prometheus_bearer_file]
        if sum(way is not None for way in ways) > 1:
            raise ValueError("prometheus: expected one of username, bearer and bearer_file")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed in: `load_settings` orders the sources itself, so that it knows where
        a value came from."""
        return (init_settings,)

    def clusters_dir(self) -> Path:
        """Where the joined clusters are; see `runtime.kube.joined`."""
        return self.clusters if self.clusters is not None else self.data_dir / "clusters"

    @property
    def shards(self) -> int:
        """Fleet shards of a plane whose ledger begins now. On the embedded broker one process
        decides, which more shards would not make faster."""
        if self.fleet_shards is not None:
            return self.fleet_shards
        return 1 if self.broker == "memory" else FLEET_SHARDS

    def security(self) -> KafkaSecurity:
        return KafkaSecurity(
            protocol=self.kafka_security,
            mechanism=self.kafka_sasl_mechanism,
            username=self.kafka_username,
            password=self.kafka_password.get_secret_value() if self.kafka_password else None,
            ca_file=self.kafka_ca_file,
            cert_file=self.kafka_cert_file,
            key_file=self.kafka_key_file,
        )

    def deadlines(self) -> Deadlines:
        """How long the database may take."""
        return Deadlines(
            self.database_timeout_s, self.database_fetch_timeout_s, self.database_lock_timeout_s
        )

    def backend(self) -> Backend:
        """The broker and database these settings name. SettingsError when there is no plane and
        none is named."""
        missing = [name for name in ("kafka", "database") if getattr(self, name) is None]
        if missing or self.kafka is None or self.database is None:
            raise SettingsError(
                *(
                    f"{name}: not set, and no plane is up in {self.data_dir}: "
                    "start one with `wharfinger up`"
                    f" or set {ENV_PREFIX}{name.upper()}"
                    for name in missing
                )
            )
        return Backend(
            bootstrap=self.kafka,
            database_url=self.database,
            capabilities=CAPABILITIES[self.broker],
            boot_id=self.broker_boot_id,
            security=self.security(),
        )


def load_settings(flags: Mapping[str, object] | None = None) -> Settings:
    """Settings of this process. `flags` are the command line's, by field name; None means not
    given.

    Raises SettingsError with one line a bad field.
    """
    layers = _layers({name: value for name, value in (flags or {}).items() if value is not None})
    values = {name: value for layer in reversed(layers) for name, value in layer.values.items()}
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError(
            *(_line(detail["loc"], detail["msg"], layers) for detail in error.errors())
        ) from error


def unknown_environment(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Variables with our prefix that name no setting: most often a typing error, sometimes a test's
    own."""
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    return sorted(name for name in environment if name.startswith(ENV_PREFIX) and name not in known)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One source of values, and how it names a field to a person."""

    values: Mapping[str, Any]  # parsed below: the only place where a value has no type yet
    name_of: Callable[[str], str]


def _layers(flags: Mapping[str, Any]) -> list[_Layer]:
    """Strongest first. Flags and environment lead because they alone may say which file and data
    directory are meant."""
    layers = [
        _Layer(flags, lambda name: f"--{name.replace('_', '-')}"),
        _Layer(_environment(), lambda name: f"{ENV_PREFIX}{name.upper()}"),
    ]
    if config := _first(layers, "config"):
        layers.append(_Layer(_read_file(Path(config)), lambda name: f"{config}: {name}"))
    data_dir = Path(_first(layers, "data_dir") or Settings.model_fields["data_dir"].default)
    layers.append(
        _Layer(_read_plane(data_dir, layers), lambda name: f"{data_dir / PLANE_FILE}: {name}")
    )
    return layers


def _first(layers: Sequence[_Layer], name: str) -> str | None:
    return next(
        (str(layer.values[name]) for layer in layers if layer.values.get(name) is not None), None
    )


def _line(location: tuple[int | str, ...], message: str, layers: Sequence[_Layer]) -> str:
    name = str(location[0]) if location else ""
    origin = next((layer.name_of(name) for layer in layers if name in layer.values), "settings")
    return (
        f"{origin}: {message.removeprefix('Value error, ').replace('Input should be', 'expected')}"
    )


def _environment() -> dict[str, Any]:
    try:
        return EnvSettingsSource(Settings)()
    except SourceError as error:
        raise SettingsError(" ".join(str(error).split())) from error


def _read_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_text()
    except OSError as error:
        raise SettingsError(f"config: {path}: {error.strerror or error}") from error
    try:
        match path.suffix:
            case ".toml":
                values: object = tomllib.loads(text)
            case ".yaml" | ".yml":
                values = _parsed_yaml(path, text)
            case _:
                raise SettingsError(
                    f"config: {path}: expected a name that ends in .yaml, .yml or .toml"
                )
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"config: {path}: {' '.join(str(error).split())}") from error
    match values:
        case None:
            return {}
        case dict():
            return {str(key): value for key, value in values.items()}
        case _:
            raise SettingsError(f"config: {path}: expected a mapping of setting names to values")


def _parsed_yaml(path: Path, text: str) -> object:
    # here, because the parser is 1.5 MB of each process and most of them read no such file
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise SettingsError(f"config: {path}: {' '.join(str(error).split())}") from error


def _read_plane(data_dir: Path, stronger: Sequence[_Layer]) -> dict[str, object]:
    """What the running plane says. A broker's promise goes with its address: who names another
    broker gets neither."""
    try:
        plane = read_plane(data_dir)
    except PlaneError as error:
        raise SettingsError(str(error)) from error
    if plane is None:
        return {}
    broker: dict[str, object] = {}
    if _first(stronger, "kafka") is None:
        broker = {"kafka": plane.bootstrap, "broker": plane.broker, "broker_boot_id": plane.boot_id}
    return {**broker, "database": plane.database_url}
