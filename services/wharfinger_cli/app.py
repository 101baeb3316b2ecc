"""The commands, their arguments and their help: the table of contents of the command line.

Each body only imports the module that does the work and hands over what was asked for. Those
imports stand inside on purpose: `wharfinger --help` must not wait for a database driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from wharfinger_cli.output import Format
from wharfinger_cli.request import Request

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="wharfinger",
    help="Places workloads on fleets of Kubernetes clusters, and keeps the book in which every "
    "placement stands.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)

PLANE = "The plane"
CLUSTERS = "Real clusters"
INTAKE = "Tell it"
ANSWERS = "Ask it"
AHEAD = "Before it happens"
HISTORY = "Its history"

OBJECTS = ("placements", "placementdecisions", "resourcebindings", "nodeannotations")
"""What `rendered` gets."""
KINDS_HELP = (
    "clusters, nodes, bindings, policies, nodepools, overlays, instance-types, nodeclaims, "
    "placements, placementdecisions, resourcebindings or nodeannotations; singular and short "
    "names too (cl, no, b, pol, np, it, nc, pl, pd, rb, na)."
)
NODES_TO_BE = ("nodepools", "overlays", "instance-types", "nodeclaims")
"""What `node_pools` gets."""

Dir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Where the plane keeps its state.  [default: ./.wharfinger]",
    ),
]
Out = Annotated[Format | None, typer.Option("--output", "-o", help="How the answer looks.")]
Stream = Annotated[
    str,
    typer.Option(
        "--stream",
        metavar="NAME",
        help="A stream or the beginning of its name: `fleet` is all fleet shards.",
    ),
]
FILENAME = typer.Option(
    "--filename",
    "-f",
    metavar="FILE|DIR|-",
    help="A manifest, a directory of them, or - for standard input.",
)
Manifests = Annotated[list[str], FILENAME]
ManyManifests = Annotated[list[str] | None, FILENAME]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse all, where an object would be placed nowhere.")
]
POINT = "a round such as fleet/0:12, a time, or an age such as 10m"
At = Annotated[str, typer.Option("--at", metavar="POINT", help=f"As it was then: {POINT}.")]
FromPoint = Annotated[str, typer.Option("--from", metavar="POINT", help=f"Begin there: {POINT}.")]
ToPoint = Annotated[str, typer.Option("--to", metavar="POINT", help=f"End there: {POINT}.")]


Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, to be recorded with the change.")
]
Revision = Annotated[
    str,
    typer.Option(
        "--revision", metavar="REF", help="The commit or release that the change comes from."
    ),
]


def _bindings(context: typer.Context, incomplete: str) -> list[str]:
    from wharfinger_cli.completion import names

    return names(context, incomplete, "bindings")


def _clusters(context: typer.Context, incomplete: str) -> list[str]:
    from wharfinger_cli.completion import names

    return names(context, incomplete, "clusters")


def _clusters_and_nodes(context: typer.Context, incomplete: str) -> list[str]:
    from wharfinger_cli.completion import names

    return names(context, incomplete, "clusters", "nodes")


def _policies(context: typer.Context, incomplete: str) -> list[str]:
    from wharfinger_cli.completion import names

    return names(context, incomplete, "policies")


def _bindings_and_policies(context: typer.Context, incomplete: str) -> list[str]:
    from wharfinger_cli.completion import names

    return names(context, incomplete, "bindings", "policies")


def _kinds(incomplete: str) -> list[str]:
    from wharfinger_cli.kind_names import KIND_NAMES

    return [kind for kind in KIND_NAMES if kind.startswith(incomplete)]


def _of_kind(context: typer.Context, incomplete: str) -> list[str]:
    from wharfinger_cli.completion import names_of_kind

    return names_of_kind(context, incomplete, str(context.params.get("what") or ""))


WaitFor = Annotated[
    str,
    typer.Option(
        "--wait",
        metavar="[=LEVEL]",
        help="End when it is accepted, decided (without a level), published, or placed on nodes. "
        "Ends with 1 where something was refused.",
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="SPAN", help="How long --wait waits at most.")
]


@app.callback()
def wharfinger(
    context: typer.Context,
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
    server: Annotated[
        str,
        typer.Option(
            "--server",
            metavar="URL",
            envvar="WHARFINGER_SERVER",
            help="Ask the HTTP API there, instead of the database.",
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", envvar="WHARFINGER_TOKEN_FILE", help="The token for it."
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version, and end.")] = False,
) -> None:
    if version:
        from wharfinger import __version__

        typer.echo(f"wharfinger {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.BadParameter("expected a command; see `wharfinger --help`")
    context.obj = replace(
        Request(data_dir, Format.TABLE, server, token_file, reason, revision), **_looks(output)
    )


def _looks(output: Format | None) -> dict[str, Any]:
    """What `--output` changes in a `Request`."""
    if output is None:
        return {}
    wide = output is Format.WIDE
    return {"format": Format.TABLE if wide else output, "wide": wide}


def _request(
    context: typer.Context,
    data_dir: Path | None,
    output: Format | None = None,
    reason: str = "",
    revision: str = "",
) -> Request:
    """Options may stand before or behind the command; behind wins, since it was said last."""
    before = context.find_object(Request) or Request(None, Format.TABLE)
    return replace(
        before,
        data_dir=data_dir or before.data_dir,
        reason=reason or before.reason,
        revision=revision or before.revision,
        **_looks(output),
    )


@app.command(rich_help_panel=PLANE)
def up(
    context: typer.Context,
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="Return when the plane is ready; leave it running."),
    ] = False,
    processes: Annotated[
        Literal["auto", "one", "two", "each"] | None,
        typer.Option(
            help="All services in one process, the scheduler and all others in two, or each in its "
            "own. auto: two where there are two cores."
        ),
    ] = None,
    data_dir: Dir = None,
) -> None:
    """Start the plane: broker, database and services, whatever of it is not named by the
    environment.

    Example: wharfinger up --detach"""
    from wharfinger_cli import lifecycle

    lifecycle.up(_request(context, data_dir), detach=detach, processes=processes)


@app.command(rich_help_panel=PLANE)
def down(context: typer.Context, data_dir: Dir = None) -> None:
    """Stop the plane, all of it, also when its supervisor was killed. What it knows stays in the
    data directory.

    Example: wharfinger down"""
    from wharfinger_cli import lifecycle

    lifecycle.down(_request(context, data_dir))


@app.command(rich_help_panel=PLANE)
def status(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    """Who runs, who is ready, how far behind, and where every stream stands.

    Example: wharfinger status -o json"""
    from wharfinger_cli import status as module

    module.status(_request(context, data_dir, output))


@app.command(rich_help_panel=PLANE)
def logs(
    context: typer.Context,
    process: Annotated[
        str | None,
        typer.Argument(
            help="As `status` names it, or supervisor.  [default: the one that decides]",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines.")] = False,
    lines: Annotated[int, typer.Option("--lines", min=0, help="The last so many.")] = 100,
    data_dir: Dir = None,
) -> None:
    """What a process of the plane on this machine has written.

    Example: wharfinger logs api --lines 20"""
    from wharfinger_cli import service_logs

    service_logs.logs(_request(context, data_dir), process, lines, follow=follow)


@app.command(rich_help_panel=PLANE)
def doctor(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    """Check everything the plane needs, one line each. Ends with 1 when something is wrong.

    Example: wharfinger doctor"""
    from wharfinger_cli import doctor as module

    module.doctor(_request(context, data_dir, output))


@app.command("support-bundle", rich_help_panel=PLANE)
def support_bundle(
    context: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="A file that is not there yet.  [default: with the time]"
        ),
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", min=0, help="The last so many of each log.")
    ] = 2000,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Write one file for support: versions, settings, what doctor and status say, where every
    stream stands, dead letters without payloads, logs. Passwords, tokens and keys are hidden.

    Example: wharfinger support-bundle --out bundle.tar.gz"""
    from wharfinger_cli import support_bundle as module

    module.support_bundle(_request(context, data_dir, output), out, lines)


@app.command(rich_help_panel=PLANE)
def migrate(
    context: typer.Context,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", help="Also make the database's roles for services, with their rights."
        ),
    ] = False,
    logins: Annotated[
        Path | None,
        typer.Option(
            "--logins",
            metavar="DIR",
            help="Also make roles, and a login for each: DIR has a file stage, publisher, api, "
            "reader or auditor, with the database URL of who works by that role.",
        ),
    ] = None,
    print_roles: Annotated[
        bool, typer.Option("--print-roles", help="Print the SQL of these roles, and do nothing.")
    ] = False,
    print_acls: Annotated[
        bool,
        typer.Option(
            "--print-acls",
            help="Print the commands that give each service its rights on Kafka, and do nothing.",
        ),
    ] = False,
    data_dir: Dir = None,
) -> None:
    """Bring schema and topics of the named database and broker to this version. `up` does it by
    itself.

    Examples: wharfinger migrate | wharfinger migrate --roles | wharfinger migrate --logins DIR |
    wharfinger migrate --print-acls"""
    from wharfinger_cli import lifecycle

    if print_roles:
        lifecycle.print_roles()
    elif print_acls:
        lifecycle.print_acls()
    else:
        lifecycle.migrate(_request(context, data_dir), roles=roles, logins=logins)


@app.command(rich_help_panel=PLANE)
def examples(directory: Annotated[Path, typer.Argument(metavar="DIR")] = Path("examples")) -> None:
    """Copy the example manifests into a new directory.

    Example: wharfinger examples"""
    from wharfinger_cli import examples as module

    module.copy(directory)


credentials = typer.Typer(help="Who may use the HTTP API.", no_args_is_help=True)
app.add_typer(credentials, name="token", rich_help_panel=PLANE)


@credentials.command("create")
def token_create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Who or what it is for.")],
    role: Annotated[
        list[str],
        typer.Option("--role", metavar="ROLE", help="viewer, operator, auditor, service or admin."),
    ],
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="Only this one.  [default: all]")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option("--source", help="Of facts that a service may post.")
    ] = None,
    lifetime: Annotated[str, typer.Option("--lifetime", metavar="SPAN")] = "30d",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the secret there, for you alone."),
    ] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Make a token of the HTTP API. Its secret is shown this once.

    Example: wharfinger token create console --role viewer --namespace shop --out console.token"""
    from wharfinger_cli import tokens

    tokens.create(
        _request(context, data_dir, output),
        name,
        role,
        namespace or [],
        source or [],
        lifetime,
        out,
    )


@credentials.command("list")
def token_list(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    """All tokens, without their secrets.

    Example: wharfinger token list"""
    from wharfinger_cli import tokens

    tokens.list_tokens(_request(context, data_dir, output))


@credentials.command("revoke")
def token_revoke(
    context: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="As `token list` shows it.")],
    data_dir: Dir = None,
) -> None:
    """Refuse a token from now on.

    Example: wharfinger token revoke console"""
    from wharfinger_cli import tokens

    tokens.revoke(_request(context, data_dir), token)


webhook_commands = typer.Typer(
    help="Events that the HTTP API sends to a URL. Over --server.", no_args_is_help=True
)
app.add_typer(webhook_commands, name="webhooks", rich_help_panel=PLANE)

NamedWebhook = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="Its name or id, as `webhooks list` shows them.")
]
SecretOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write the secret there, for you alone."),
]


@webhook_commands.command("create")
def webhooks_create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Who or what it is for.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Events are posted to it.")],
    type: Annotated[list[str] | None, typer.Option("--type", help="Such as bindings.")] = None,
    namespace: Annotated[list[str] | None, typer.Option("--namespace", "-n")] = None,
    binding: Annotated[list[str] | None, typer.Option("--binding")] = None,
    cluster: Annotated[list[str] | None, typer.Option("--cluster")] = None,
    outcome: Annotated[list[str] | None, typer.Option("--outcome")] = None,
    facts: Annotated[bool, typer.Option("--facts", help="What was accepted, too.")] = False,
    order: Annotated[str, typer.Option("--order", help="key, all or none.")] = "key",
    after: Annotated[
        str, typer.Option("--after", help="A position, earliest, latest, or a time.")
    ] = "latest",
    out: SecretOut = None,
    output: Out = None,
) -> None:
    """Have events sent to a URL, signed by Standard Webhooks. The secret is shown this once.

    Example: wharfinger webhooks create billing https://billing.example.org/events -n shop"""
    from wharfinger_cli import webhooks

    wanted = {
        "type": type or [],
        "namespace": namespace or [],
        "binding": binding or [],
        "cluster": cluster or [],
        "outcome": outcome or [],
        "facts": facts,
    }
    webhooks.create(_request(context, None, output), name, url, wanted, order, after, out)


@webhook_commands.command("list")
def webhooks_list(context: typer.Context, output: Out = None) -> None:
    """Subscriptions, and how far their receivers have come.

    Example: wharfinger webhooks list"""
    from wharfinger_cli import webhooks

    webhooks.list_webhooks(_request(context, None, output))


@webhook_commands.command("deliveries")
def webhooks_deliveries(
    context: typer.Context,
    webhook: NamedWebhook,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="waiting, delivered or dead.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1)] = 50,
    output: Out = None,
) -> None:
    """What was sent, waits, or was given up, the newest first.

    Example: wharfinger webhooks deliveries billing --state dead"""
    from wharfinger_cli import webhooks

    webhooks.deliveries(_request(context, None, output), webhook, state or [], limit)


@webhook_commands.command("pause")
def webhooks_pause(context: typer.Context, webhook: NamedWebhook, output: Out = None) -> None:
    """Send nothing until it is resumed. Nothing is lost meanwhile.

    Example: wharfinger webhooks pause billing"""
    from wharfinger_cli import webhooks

    webhooks.pause(_request(context, None, output), webhook, paused=True)


@webhook_commands.command("resume")
def webhooks_resume(context: typer.Context, webhook: NamedWebhook, output: Out = None) -> None:
    """Go on where it was, and try what waits at once.

    Example: wharfinger webhooks resume billing"""
    from wharfinger_cli import webhooks

    webhooks.pause(_request(context, None, output), webhook, paused=False)


@webhook_commands.command("rotate")
def webhooks_rotate(
    context: typer.Context, webhook: NamedWebhook, out: SecretOut = None, output: Out = None
) -> None:
    """Make a new secret, shown this once. For 24 hours the old one signs too.

    Example: wharfinger webhooks rotate billing --out billing.secret"""
    from wharfinger_cli import webhooks

    webhooks.rotate(_request(context, None, output), webhook, out)


@webhook_commands.command("redeliver")
def webhooks_redeliver(
    context: typer.Context,
    webhook: NamedWebhook,
    after: Annotated[
        str, typer.Option("--after", help="All beyond a position, a time, or earliest.")
    ] = "",
    dead: Annotated[bool, typer.Option("--dead", help="All dead letters.")] = False,
    sequence: Annotated[
        int | None, typer.Option("--sequence", min=1, help="The dead letter of this delivery.")
    ] = None,
    output: Out = None,
) -> None:
    """Deliver again: dead letters, or everything beyond a position.

    Example: wharfinger webhooks redeliver billing --dead"""
    from wharfinger_cli import webhooks

    webhooks.redeliver(_request(context, None, output), webhook, after, dead, sequence)


@webhook_commands.command("delete")
def webhooks_delete(context: typer.Context, webhook: NamedWebhook, output: Out = None) -> None:
    """Remove a subscription, with its deliveries.

    Example: wharfinger webhooks delete billing"""
    from wharfinger_cli import webhooks

    webhooks.delete(_request(context, None, output), webhook)


@app.command(rich_help_panel=PLANE)
def provide(
    context: typer.Context,
    delay: Annotated[
        float, typer.Option("--delay", min=0, help="Seconds from a claim to its node.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="End when no claim is waiting any more.")
    ] = False,
    data_dir: Dir = None,
) -> None:
    """Stand in for whoever makes nodes: claims become nodes in what the plane is told, removed
    nodes vanish from it.

    Example: wharfinger provide --delay 30"""
    from wharfinger_cli import provide as module

    module.provide(_request(context, data_dir), delay, once=once)


@app.command(rich_help_panel=PLANE)
def demo(
    context: typer.Context,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the data directory when it is done.")
    ] = False,
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE", help="Where the page of the what-if goes.")
    ] = Path("what-if.html"),
    data_dir: Dir = None,
) -> None:
    """See it work in a minute: schedule a fleet, lose a cluster, explain, prove, and replay it
    under another policy.

    Example: wharfinger demo --keep"""
    from wharfinger_cli import demo as module

    module.demo(_request(context, data_dir), keep=keep, report=report)


@app.command(rich_help_panel=CLUSTERS)
def join(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What the cluster is called from now on.")],
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help="How it is reached.")
    ] = None,
    kube_context: Annotated[
        str, typer.Option("--context", help="Of the kubeconfig.  [default: the current one]")
    ] = "",
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="observe|shadow|fleet|act",
            help="Read only; decide beside its scheduler; or be changed, by the verbs enabled.",
        ),
    ] = "observe",
    in_cluster: Annotated[
        bool, typer.Option("--in-cluster", help="The cluster that this pod runs in.")
    ] = False,
    service_account: Annotated[
        Path | None,
        typer.Option(
            "--service-account",
            metavar="DIR",
            help="With --in-cluster: where its token and CA are mounted, if not as usual.",
        ),
    ] = None,
    through: Annotated[
        str,
        typer.Option(
            "--through",
            metavar="karmada|ocm",
            help="The kubeconfig is of Karmada's API server or of OCM's cluster-proxy.",
        ),
    ] = "",
    member: Annotated[
        str, typer.Option("--member", help="Its name there.  [default: the same]")
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow insecure-skip-tls-verify in the kubeconfig.")
    ] = False,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Of the cluster.")
    ] = None,
    provider: Annotated[str, typer.Option("--provider", help="Of the cluster.")] = "",
    region: Annotated[str, typer.Option("--region", help="Of the cluster.")] = "",
    lease_s: Annotated[
        int | None,
        typer.Option(
            "--lease", min=1, metavar="SECONDS", help="Missing heartbeats are normal so long."
        ),
    ] = None,
    shadow_of: Annotated[
        list[str] | None,
        typer.Option(
            "--shadow-of",
            metavar="SCHEDULER",
            help="Whose pods are compared.  [default: default-scheduler]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check, and store nothing.")
    ] = False,
    hub: Annotated[
        bool,
        typer.Option(
            "--hub", help="It holds the objects of a fleet (Karmada, OCM, Karpenter), no nodes."
        ),
    ] = False,
    verb: Annotated[
        list[str] | None,
        typer.Option(
            "--verb",
            metavar="bind|evict|nodes|claims|copy|karmada|ocm|templates",
            help="What may be changed in it (mode act), or in a hub (mode fleet).  [default: bind]",
        ),
    ] = None,
    write_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--write-kubeconfig",
            metavar="FILE",
            help="With which credentials it is changed.  [default: those that read]",
        ),
    ] = None,
    write_context: Annotated[
        str, typer.Option("--write-context", help="Of that kubeconfig.  [default: the current one]")
    ] = "",
    secrets: Annotated[
        list[str] | None,
        typer.Option(
            "--secrets",
            metavar="NAMESPACE",
            help="Where Secrets are copied with workloads that name them (verb copy or templates)."
            "  [default: nowhere]",
        ),
    ] = None,
    rbac: Annotated[
        bool,
        typer.Option("--print-rbac", help="Print the manifests of the rights that are needed."),
    ] = False,
    secret: Annotated[
        bool,
        typer.Option(
            "--print-secret", help="Print the Secret for a plane in Kubernetes, with credentials."
        ),
    ] = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Join a running cluster: check server, rights, clock and schedulers, say what will be read,
    and keep how it is reached. Joining writes nothing to it. Ends with 1 when a right is
    missing.

    Example: wharfinger join oslo --kubeconfig oslo.config --mode shadow"""
    from wharfinger_cli import join as module

    options = module.JoinOptions(
        kubeconfig,
        kube_context,
        mode,
        in_cluster,
        through,
        member,
        insecure,
        tuple(label or ()),
        provider,
        region,
        lease_s,
        tuple(shadow_of or ()),
        dry_run,
        hub,
        tuple(verb or ()),
        write_kubeconfig,
        write_context,
        service_account,
        tuple(secrets or ()),
    )
    if rbac:
        module.print_rights(name, options)
    elif secret:
        module.print_secret(name, options)
    else:
        module.join(_request(context, data_dir, output), name, options)


@app.command(rich_help_panel=CLUSTERS)
def leave(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Of the cluster.")],
    data_dir: Dir = None,
) -> None:
    """Forget how a joined cluster is reached. Nothing in it has to be undone.

    Example: wharfinger leave oslo"""
    from wharfinger_cli import join as module

    module.leave(_request(context, data_dir), name)


@app.command(rich_help_panel=CLUSTERS)
def release(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Of the cluster.")],
    annotations: Annotated[
        bool,
        typer.Option("--annotations", help="Remove ours from pods and copies, too. Needs rights."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be given back. Nothing is changed.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            help="With which credentials it is changed.  [default: those that write]",
        ),
    ] = None,
    kube_context: Annotated[
        str, typer.Option("--context", help="Of that kubeconfig.  [default: the current one]")
    ] = "",
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Give a cluster back: its mode becomes observe, and nodes that were cordoned for decisions are
    uncordoned. Nothing that runs is touched. Ends with 1 when something is left.

    Examples: wharfinger release oslo --dry-run | wharfinger release oslo"""
    from wharfinger_cli import release as module

    options = module.ReleaseOptions(annotations, dry_run, kubeconfig, kube_context)
    module.release(_request(context, data_dir, output), name, options)


@app.command(rich_help_panel=CLUSTERS)
def shadow(
    context: typer.Context,
    cluster: Annotated[
        str, typer.Argument(help="Whose scheduler is compared with ours.", autocompletion=_clusters)
    ],
    since: Annotated[
        str, typer.Option("--since", metavar="POINT", help=f"Begin there: {POINT}.")
    ] = "",
    to: ToPoint = "",
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            "--scheduler",
            metavar="NAME",
            help="Whose choices are compared.  [default: as joined, else default-scheduler]",
        ),
    ] = None,
    release: Annotated[
        str,
        typer.Option(
            "--release", metavar="1.36", help="Of its Kubernetes.  [default: of the joined cluster]"
        ),
    ] = "",
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write it as a page, too.")
    ] = None,
    hub: Annotated[
        bool, typer.Option("--hub", help="It is a hub (Karmada, OCM).  [default: as joined]")
    ] = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Compare what a cluster's own scheduler did, or those of a hub, with what we decide on the
    same facts. Ends with 1 when it placed what we refuse.

    Example: wharfinger shadow oslo --since 1d --report shadow.html"""
    from wharfinger_cli import shadow as module

    options = module.ShadowOptions(since, to, tuple(scheduler or ()), release, report, hub)
    module.show_shadow(_request(context, data_dir, output), cluster, options)


@app.command(rich_help_panel=CLUSTERS)
def effects(
    context: typer.Context,
    cluster: Annotated[
        str | None, typer.Argument(help="A joined cluster.  [default: all of them]")
    ] = None,
    verb: Annotated[
        list[str] | None,
        typer.Option(
            "--verb",
            metavar="bind|evict|nodes|copy",
            help="As if it were enabled.  [default: as joined]",
        ),
    ] = None,
    open_: Annotated[
        bool,
        typer.Option(
            "--open", help="Since when and why it is open, instead of the requests; barred nodes."
        ),
    ] = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Show what was decided about joined clusters and is not done there yet, with the requests that
    the actuator sends for it. Sends nothing.

    Example: wharfinger effects oslo --open"""
    from wharfinger_cli import effects as module

    show = module.show_open if open_ else module.show_effects
    show(_request(context, data_dir, output), cluster, tuple(verb or ()))


@app.command(rich_help_panel=CLUSTERS)
def drift(
    context: typer.Context,
    cluster: Annotated[
        str | None, typer.Argument(help="A joined cluster.  [default: all of them]")
    ] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Show where others have changed joined clusters since it was decided: pods on other nodes,
    nodes uncordoned by hand, fields of copied workloads. Ends with 1 when there is any.

    Example: wharfinger drift oslo"""
    from wharfinger_cli import drift as module

    module.show_drift(_request(context, data_dir, output), cluster)


@app.command(rich_help_panel=INTAKE)
def apply(
    context: typer.Context,
    filename: ManyManifests = None,
    plan: Annotated[
        str,
        typer.Option(
            "--plan",
            metavar="ID",
            help="A plan that was made: it happens as planned, or not at all.",
        ),
    ] = "",
    strict: Strict = False,
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """Accept manifests (Karmada, OCM, crane, Karpenter, Kubernetes), all or nothing; or carry out a
    plan. Objects of any kind are placed where a policy selects them; others are skipped.

    Example: wharfinger apply -f shop/ --reason 'release 12' --wait"""
    from wharfinger_cli.waiting import wait_of

    request = _request(context, data_dir, output, reason, revision)
    names = filename or []
    waits = wait_of(wait, timeout)
    if plan:
        from wharfinger_cli.plan import carry_out

        carry_out(request, plan, names, waits)
    else:
        from wharfinger_cli import apply as module

        module.apply(request, names, strict=strict, wait=waits)


@app.command(rich_help_panel=INTAKE)
def delete(
    context: typer.Context,
    filename: Manifests,
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """Withdraw what the manifests name.

    Example: wharfinger delete -f shop/web.yaml"""
    from wharfinger_cli import apply as module
    from wharfinger_cli.waiting import wait_of

    request = _request(context, data_dir, output, reason, revision)
    module.delete(request, filename, wait=wait_of(wait, timeout))


@app.command(rich_help_panel=INTAKE)
def scale(
    context: typer.Context,
    binding: Annotated[
        str,
        typer.Argument(
            help="namespace/name, or the name where only one binding has it.",
            autocompletion=_bindings,
        ),
    ],
    replicas: Annotated[int, typer.Argument(min=0)],
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """Ask for so many replicas of a binding. `plan scale` shows beforehand what comes of it; the
    next `apply` of its manifest overrides it.

    Example: wharfinger scale shop/web 5 --reason 'sale' --wait=placed"""
    from wharfinger_cli import upkeep
    from wharfinger_cli.waiting import wait_of

    request = _request(context, data_dir, output, reason, revision)
    upkeep.scale(request, binding, replicas, wait_of(wait, timeout))


WHAT = "A cluster, or a node as cluster/node or node."


@app.command(rich_help_panel=INTAKE)
def drain(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="CLUSTER|NODE", help=WHAT, autocompletion=_clusters_and_nodes)
    ],
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """Have everything leave a cluster or a node. `plan drain` shows beforehand where it would go.
    What a collector reports of a joined cluster overrides it: drain nodes of such a cluster there.

    Example: wharfinger drain oslo/oslo-0003"""
    from wharfinger_cli import upkeep
    from wharfinger_cli.waiting import wait_of

    request = _request(context, data_dir, output, reason, revision)
    upkeep.drain(request, what, wait_of(wait, timeout))


@app.command(rich_help_panel=INTAKE)
def undrain(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="CLUSTER|NODE", help=WHAT, autocompletion=_clusters_and_nodes)
    ],
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """Let a drained cluster or node take replicas again.

    Example: wharfinger undrain oslo/oslo-0003"""
    from wharfinger_cli import upkeep
    from wharfinger_cli.waiting import wait_of

    request = _request(context, data_dir, output, reason, revision)
    upkeep.undrain(request, what, wait_of(wait, timeout))


imports = typer.Typer(help="Read a fleet and its workloads from elsewhere.", no_args_is_help=True)
app.add_typer(imports, name="import", rich_help_panel=INTAKE)


@imports.command("openb")
def import_openb(
    context: typer.Context,
    nodes: Annotated[
        Path, typer.Option("--nodes", metavar="FILE", help="Node list, CSV, may be gzipped.")
    ],
    pods: Annotated[
        Path, typer.Option("--pods", metavar="FILE", help="Pod list, CSV, may be gzipped.")
    ],
    clusters: Annotated[
        int, typer.Option(min=1, max=1523, help="Spread the nodes over so many clusters.")
    ] = 8,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Bindings a second.  [default: as fast as can be]"),
    ] = None,
    strategy: Annotated[
        Literal["dynamic", "aggregated"],
        typer.Option(help="Spread by available room, or pack into few clusters."),
    ] = "dynamic",
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """The public Alibaba openb trace: nodes as clusters, one binding a pod in order of arrival.
    Repeatable.

    Example: wharfinger import openb --nodes nodes.csv --pods pods.csv --rate 100"""
    from wharfinger_cli import bulk
    from wharfinger_cli.waiting import wait_of

    request = _request(context, data_dir, output, reason, revision)
    waits = wait_of(wait, timeout)
    bulk.import_openb(request, nodes, pods, clusters, rate, strategy, waits)


@imports.command("instance-types")
def import_instance_types(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="CSV, may be gzipped, or Karpenter's JSON."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="Of the catalogue, as node pools call it.")
    ] = "default",
    format_: Annotated[
        Literal["auto", "kwok", "karpenter", "aws", "azure", "gcp", "csv"],
        typer.Option("--format", help="What the files are; auto knows them by their columns."),
    ] = "auto",
    region: Annotated[str, typer.Option("--region", help="Of a price list with several.")] = "",
    zones: Annotated[
        str,
        typer.Option(
            "--zones",
            metavar="A,B",
            help="Of a price list: where its types are offered, as `a,b` or `1,2`.",
        ),
    ] = "",
    spot_factor: Annotated[
        str,
        typer.Option(
            "--spot-factor",
            metavar="0.35",
            help="Offer types as spot, too, for so much of the price.",
        ),
    ] = "",
    overhead: Annotated[
        str,
        typer.Option(
            "--overhead",
            metavar="cpu=100m,memory=1Gi",
            help="Of a price list: what pods cannot have of a node.",
        ),
    ] = "",
    pods: Annotated[
        int, typer.Option("--pods", min=0, help="Of a price list: pods a node takes; 0: 110.")
    ] = 0,
    remove: Annotated[
        str, typer.Option("--remove", metavar="NAME", help="Take this catalogue back.")
    ] = "",
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """What nodes can be bought, and for how much: Karpenter's KWOK types, price lists of AWS, Azure
    and Google, or a plain CSV.

    Example: wharfinger import instance-types aws.csv --name aws --region eu-north-1"""
    from wharfinger_cli import instance_types as module
    from wharfinger_cli.waiting import wait_of

    options = module.ImportOptions(
        name, format_, region, zones, spot_factor, overhead, pods, remove
    )
    request = _request(context, data_dir, output, reason, revision)
    module.import_instance_types(request, files or [], options, wait_of(wait, timeout))


generates = typer.Typer(help="Make up input from a seed.", no_args_is_help=True)
app.add_typer(generates, name="generate", rich_help_panel=INTAKE)


@generates.command("fleet")
def generate_fleet(
    context: typer.Context,
    clusters: Annotated[int, typer.Option(min=1, help="Clusters in all.")] = 6,
    nodes: Annotated[int, typer.Option(min=0, help="Nodes in all.")] = 120,
    bindings: Annotated[int, typer.Option(min=0, help="Bindings in all.")] = 300,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the events, one a line; `apply -f` reads them."
        ),
    ] = None,
    apply_: Annotated[bool, typer.Option("--apply", help="Tell them to the plane.")] = False,
    wait: WaitFor = "",
    timeout: Timeout = "5m",
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """A fleet with regions, zones, clouds, taints and GPUs, and bindings of every placement.

    Example: wharfinger generate fleet --clusters 6 --nodes 180 --bindings 300 --seed 2 --apply"""
    from wharfinger_cli import bulk
    from wharfinger_cli.generate import FleetPlan
    from wharfinger_cli.waiting import wait_of

    bulk.generate_fleet(
        _request(context, data_dir, output, reason, revision),
        FleetPlan(clusters, nodes, bindings, seed),
        out,
        apply=apply_,
        wait=wait_of(wait, timeout),
    )


@app.command(rich_help_panel=ANSWERS)
def get(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="KIND", help=KINDS_HELP, autocompletion=_kinds)],
    name: Annotated[
        str | None, typer.Argument(help="Only this one.", autocompletion=_of_kind)
    ] = None,
    at: At = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Those in this namespace.")
    ] = "",
    placement: Annotated[
        str, typer.Option(help="Of placementdecisions: those of this placement.")
    ] = "",
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="Those in, or placed in, this cluster.",
            autocompletion=_clusters,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Bindings that this policy places.",
            autocompletion=_policies,
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Bindings: waiting, scheduled, refused, released, pending. "
            "Clusters: ready, silent, leaving. Nodes: ready, cordoned.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Or KEY!=VALUE, KEY, !KEY."),
    ] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """What the plane knows, and where its bindings are; now, or as it was. The last four kinds as
    objects of OCM, Karmada and crane.

    Examples: wharfinger get bindings -n shop --state refused
    | wharfinger get b --cluster oslo -l app=web -o wide | wharfinger get nodes oslo --at 2h"""
    from wharfinger_cli.kind_names import kind_meant

    request, what = _request(context, data_dir, output), kind_meant(what)
    if what in OBJECTS:
        from wharfinger_cli import rendered

        _not_with(what, {"--policy": policy, "--state": state, "--label": label})
        if len(cluster or ()) > 1:
            raise typer.BadParameter("expected once", param_hint="--cluster")
        rendered.get(request, what, name, at, namespace, placement, "".join(cluster or ()))
    elif what in NODES_TO_BE:
        from wharfinger_cli import node_pools

        _not_with(
            what,
            {
                "--namespace": namespace,
                "--placement": placement,
                "--cluster": cluster,
                "--policy": policy,
                "--state": state,
                "--label": label,
            },
        )
        node_pools.get(request, what, name, at)
    else:
        from wharfinger.answers.selection import ListSelection
        from wharfinger_cli import facts

        not_of: Mapping[str, Mapping[str, object]] = {
            "bindings": {"--placement": placement},
            "clusters": {"--placement": placement, "--namespace": namespace, "--policy": policy},
            "nodes": {"--placement": placement, "--namespace": namespace, "--policy": policy},
            "policies": {
                "--placement": placement,
                "--cluster": cluster,
                "--state": state,
                "--label": label,
            },
        }
        _not_with(what, not_of[what])
        wanted = ListSelection(
            (namespace,) if namespace else (), cluster or (), policy or (), state or (), label or ()
        )
        facts.get(request, what, name, at, wanted)


def _not_with(what: str, options: Mapping[str, object]) -> None:
    """CommandError: one of them is given, and says nothing of this kind."""
    from wharfinger_cli.failures import CommandError

    if given := [option for option, value in options.items() if value]:
        raise CommandError(f"{given[0]}: not an option of {what}")


@app.command(rich_help_panel=ANSWERS)
def decisions(
    context: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new ones as they are committed.")
    ] = False,
    stream: Stream = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="From then on: 2026-11-21T05:00:00Z, or an age such as 90s, 10m, 2h, 1d.",
        ),
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Every decision from the beginning, in the order of its stream. With -o json one a line.

    Example: wharfinger decisions --stream fleet --since 1h"""
    from wharfinger_cli import decisions as module

    module.decisions(
        _request(context, data_dir, output), follow=follow, stream=stream, since=since, limit=limit
    )


@app.command(rich_help_panel=ANSWERS)
def explain(
    context: typer.Context,
    binding: Annotated[
        str,
        typer.Argument(
            help="namespace/name, or the name where only one binding has it.",
            autocompletion=_bindings,
        ),
    ],
    at: At = "",
    decision: Annotated[
        str, typer.Option("--decision", metavar="ID", help="This decision instead of the latest.")
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Every cluster and node, not only the nearest few.")
    ] = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Why it is where it is, why not elsewhere, and what the smallest change is that would let it
    in there.

    Example: wharfinger explain shop/web --at 10m"""
    from wharfinger_cli import explain as module

    module.explain(_request(context, data_dir, output), binding, at, decision, every=every)


@app.command(rich_help_panel=ANSWERS)
def history(
    context: typer.Context,
    binding: Annotated[
        str,
        typer.Argument(
            help="namespace/name, or the name where only one binding has it.",
            autocompletion=_bindings,
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, help="The latest so many.")] = 50,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Every decision about a binding, in all streams, with what caused it.

    Example: wharfinger history shop/web --limit 20"""
    from wharfinger_cli import timeline

    timeline.history(_request(context, data_dir, output), binding, limit)


@app.command(rich_help_panel=ANSWERS)
def lineage(
    context: typer.Context,
    binding: Annotated[
        str | None,
        typer.Argument(help="The latest decisions about this binding.", autocompletion=_bindings),
    ] = None,
    decision: Annotated[str, typer.Option("--decision", metavar="ID", help="This decision.")] = "",
    event: Annotated[str, typer.Option("--event", metavar="ID", help="This event.")] = "",
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """What led to it and what it led to, from service to service, with the ids of the events.

    Example: wharfinger lineage shop/web"""
    from wharfinger_cli import lineage as module

    module.lineage(_request(context, data_dir, output), binding, decision, event)


@app.command(rich_help_panel=ANSWERS)
def diff(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help=f"Before: {POINT}.")],
    b: Annotated[str, typer.Argument(metavar="B", help="After: the same, or now.")] = "now",
    stream: Stream = "",
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """What changed between two moments: clusters, bindings, replicas, nodes. Ends with 1 when
    something did.

    Example: wharfinger diff 1h now"""
    from wharfinger_cli import diff as module

    module.diff(_request(context, data_dir, output), a, b, stream)


@app.command(rich_help_panel=ANSWERS)
def savings(
    context: typer.Context,
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Of this cluster only.")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Decided since: a time, or an age as 2d.")
    ] = "",
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """What each consolidation promised and what came of it, moves per saved dollar, and moves that
    were taken back.

    Example: wharfinger savings --since 7d"""
    from wharfinger_cli import savings as module

    module.show_savings(_request(context, data_dir, output), cluster, since)


plans = typer.Typer(
    help="See what would happen before it does. Ends with 0 when nothing would, "
    "with 1 when something would.\n\nExample: wharfinger plan -f shop/",
    invoke_without_command=True,
    context_settings=HELP,
)
app.add_typer(plans, name="plan", rich_help_panel=AHEAD)


@plans.callback()
def plan(
    context: typer.Context,
    filename: ManyManifests = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="FILE", help="Policies as if they were applied."),
    ] = None,
    strict: Strict = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """What applying manifests would move, place and refuse. Nothing is told to the plane; `apply
    --plan ID` does it."""
    if context.invoked_subcommand is not None:
        context.obj = _request(context, data_dir, output)
        return
    from wharfinger_cli import plan as module

    module.plan(_request(context, data_dir, output), filename or [], policy or [], strict=strict)


@plans.command("drain")
def plan_drain(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="NODE|CLUSTER",
            help="A node as cluster/node or node, or a cluster.",
            autocompletion=_clusters_and_nodes,
        ),
    ],
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Where everything on a node or a cluster would go, and what would stay stuck.

    Example: wharfinger plan drain oslo"""
    from wharfinger_cli import plan as module

    module.drain(_request(context, data_dir, output), what)


@plans.command("scale")
def plan_scale(
    context: typer.Context,
    binding: Annotated[
        str,
        typer.Argument(
            help="namespace/name, or the name where only one binding has it.",
            autocompletion=_bindings,
        ),
    ],
    replicas: Annotated[int, typer.Argument(min=0)],
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """What so many replicas of a binding would do.

    Example: wharfinger plan scale shop/web 25"""
    from wharfinger_cli import plan as module

    module.scale(_request(context, data_dir, output), binding, replicas)


@plans.command("consolidate")
def plan_consolidate(
    context: typer.Context,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="NAME", help="This cluster only.", autocompletion=_clusters
        ),
    ] = "",
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="FILE", help="Pools as if they were applied."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="List every node that stays, and every change.")
    ] = False,
    over: Annotated[
        str,
        typer.Option(
            "--over",
            metavar="SPAN",
            help="What would be done over so long, such as 12h or 7d, one pass after another.",
        ),
    ] = "",
    from_: FromPoint = "",
    provides_after: Annotated[
        str,
        typer.Option(
            "--provides-after",
            metavar="SPAN",
            help="How long a node takes to come or to go, with --over (default: 60s).",
        ),
    ] = "",
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Which nodes could go or be replaced now, at what saving, and why each of the others stays.
    With --over: which would be, and when. Nothing is done.

    Example: wharfinger plan consolidate --cluster oslo --over 7d"""
    request = _request(context, data_dir, output)
    if over or from_ or provides_after:
        from wharfinger_cli import consolidate_over as module_over

        over_time = module_over.OverTime(over, from_, provides_after)
        module_over.consolidate_over(request, cluster, policy or [], over_time, every=every)
        return
    from wharfinger_cli import consolidate as module

    module.consolidate(request, cluster, policy or [], every=every)


@app.command(rich_help_panel=AHEAD)
def rollback(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="BINDING|POLICY",
            help="A binding, or a policy by name or key.",
            autocompletion=_bindings_and_policies,
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="DECISION|POINT", help=f"A decision's id, or {POINT}.")
    ],
    apply_: Annotated[
        bool, typer.Option("--apply", help="Do it, instead of saying what it would do.")
    ] = False,
    data_dir: Dir = None,
    output: Out = None,
    reason: Reason = "",
    revision: Revision = "",
) -> None:
    """Back to where it was: planned first, and refused where the old places are gone.

    Example: wharfinger rollback shop/web --to 1h"""
    from wharfinger_cli import rollback as module

    request = _request(context, data_dir, output, reason, revision)
    module.rollback(request, what, to, apply=apply_)


audits = typer.Typer(help="Prove that the history is as it was written.", no_args_is_help=True)
app.add_typer(audits, name="audit", rich_help_panel=HISTORY)


@audits.command("verify")
def audit_verify(
    context: typer.Context,
    stream: Stream = "",
    topic: Annotated[
        bool, typer.Option("--topic", help="Also hold the published decisions against the ledger.")
    ] = False,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            "--checkpoint",
            metavar="FILE",
            help="A signed checkpoint the ledger must still agree with.",
        ),
    ] = None,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoints",
            metavar="PLACE",
            help="All that the plane has shipped to a file, kafka://TOPIC or URL.",
        ),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", metavar="FILE", help="Who must have signed it.")
    ] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Walk chains, heads and snapshots, and name the first bad row. Ends with 1 when there is
    one.

    Example: wharfinger audit verify --checkpoint night.json --public-key audit.key.pub"""
    from wharfinger_cli import audit

    request = _request(context, data_dir, output)
    audit.verify(request, stream, topic, checkpoint or [], checkpoints or [], public_key)


@audits.command("checkpoint")
def audit_checkpoint(
    context: typer.Context,
    key: Annotated[
        Path, typer.Option("--key", metavar="FILE", help="Private key, made by `audit key`.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where to write it; keep it elsewhere.")
    ],
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Sign where every stream stands. Held against the ledger later, it shows a history that was
    rewritten as a whole.

    Example: wharfinger audit checkpoint --key audit.key --out night.json"""
    from wharfinger_cli import audit

    audit.checkpoint(_request(context, data_dir, output), key, out)


@audits.command("access")
def audit_access(
    context: typer.Context,
    actor: Annotated[
        list[str] | None, typer.Option("--actor", metavar="WHO", help="Such as token:ci.")
    ] = None,
    outcome: Annotated[
        list[str] | None, typer.Option("--outcome", help="allowed or refused.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="A time, or an age such as 10m.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Who wrote over the HTTP API, was refused, or read what belongs to others; the newest
    first.

    Example: wharfinger audit access --outcome refused --since 1d"""
    from wharfinger_cli import accesses

    request = _request(context, data_dir, output)
    accesses.access(request, actor or [], outcome or [], since, limit)


@audits.command("key")
def audit_key(path: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Make a key to sign checkpoints with: FILE, for you alone, and FILE.pub, for everybody.

    Example: wharfinger audit key audit.key"""
    from wharfinger_cli import audit

    audit.make_key(path)


@app.command(rich_help_panel=HISTORY)
def replay(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="An exported history, instead of the plane's ledger."
        ),
    ] = None,
    stream: Stream = "",
    from_: FromPoint = "",
    to: ToPoint = "",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the work. Default: one a core.")
    ] = None,
    strict_engine: Annotated[
        bool,
        typer.Option(
            "--strict-engine", help="Also end with 1 where another version decided otherwise."
        ),
    ] = False,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FILE|NAME=VALUE",
            help="What if: policies from a file, or a setting of the engine.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="What if: write the comparison as a page."),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", metavar="FILE", help="What if: CSV of instance types and hourly prices."
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if", metavar="EXPR", help="What if: end with 1 when true, such as 'moves>5%'."
        ),
    ] = None,
    tenant: Annotated[
        str,
        typer.Option(
            "--tenant",
            metavar="LABEL",
            help="What if: label that names the tenant.  [default: namespace]",
        ),
    ] = "",
    propose: Annotated[
        bool,
        typer.Option(
            "--propose", help="What if: propose what is better; the scheduler checks and decides."
        ),
    ] = False,
    only_better: Annotated[
        bool, typer.Option("--only-better", help="Propose only what the objective gains by.")
    ] = False,
    objective: Annotated[
        Literal["spread", "pack", "cost"], typer.Option(help="What better means, for --propose.")
    ] = "spread",
    budget: Annotated[int | None, typer.Option(min=0, help="Propose at most so many.")] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Take every recorded decision again and compare bytes; or, --with other policies, compare what
    would have happened.

    Example: wharfinger replay --with policies/packed.yaml --report what-if.html"""
    request = _request(context, data_dir, output)
    _only_with(
        with_,
        propose,
        {"--report": report, "--prices": prices, "--fail-if": fail_if, "--tenant": tenant},
    )
    if with_ or propose:
        from wharfinger_cli import whatif

        whatif.replay_with(
            request,
            whatif.WhatIfOptions(
                with_ or [],
                stream,
                from_,
                to,
                report,
                prices,
                fail_if or [],
                propose,
                only_better,
                budget,
                objective,
                tenant,
            ),
        )
    elif file is not None:
        from wharfinger_cli import ledger_file

        ledger_file.replay_file(request, file)
    else:
        from wharfinger_cli import history as module

        module.replay(request, stream, from_, to, workers, strict_engine=strict_engine)


def _only_with(with_: list[str] | None, propose: bool, options: Mapping[str, object]) -> None:
    """What says how to compare is a mistake where nothing is compared."""
    from wharfinger_cli.failures import CommandError

    given = [name for name, value in options.items() if value]
    if given and not (with_ or propose):
        raise CommandError(
            f"replay: {given[0]} is about a comparison; expected --with FILE or --with "
            "NAME=VALUE beside it"
        )


ledgers = typer.Typer(
    help="The history as a whole: take it along, retire its oldest part, set its time right.",
    no_args_is_help=True,
)
app.add_typer(ledgers, name="ledger", rich_help_panel=HISTORY)


@ledgers.command("export")
def ledger_export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    stream: Stream = "",
    from_: FromPoint = "",
    to: ToPoint = "",
    redact: Annotated[
        Path | None,
        typer.Option(
            "--redact", metavar="KEYFILE", help="Replace every name, by a hash under this key."
        ),
    ] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """One file that can be verified and replayed anywhere, without a database.

    Example: wharfinger ledger export history.jsonl --redact names.key"""
    from wharfinger_cli import ledger_file

    ledger_file.export(_request(context, data_dir, output), file, stream, from_, to, redact)


@ledgers.command("retire")
def ledger_retire(
    context: typer.Context,
    before: Annotated[str, typer.Option("--before", metavar="TIME", help="What is older may go.")],
    checkpoint: Annotated[
        Path,
        typer.Option(
            "--checkpoint",
            metavar="FILE",
            help="The signed checkpoint that vouches for it from now on.",
        ),
    ],
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Export it there first.")
    ] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="Drop the detached tables instead of keeping them.")
    ] = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Detach the oldest part of the history. What is still true is kept, and what remains can be
    verified and replayed.

    Example: wharfinger ledger retire --before 30d --checkpoint night.json --archive old"""
    from wharfinger_cli import retention

    retention.retire(_request(context, data_dir, output), before, checkpoint, archive, drop)


@ledgers.command("rebase")
def ledger_rebase(
    context: typer.Context,
    stream: Annotated[
        str, typer.Option("--stream", metavar="NAME", help="This stream only; all without it.")
    ] = "",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Is recorded with the decision.")
    ] = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it. Without this it is only shown.")
    ] = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Set the time of streams right that a wrong clock has put ahead. What was under way has as
    much time left as before.

    Example: wharfinger ledger rebase --apply"""
    from wharfinger_cli import rebase

    rebase.rebase(_request(context, data_dir, output), stream, reason, apply)


letters = typer.Typer(help="Messages that could not be read.", no_args_is_help=True)
app.add_typer(letters, name="dead-letters", rich_help_panel=HISTORY)


@letters.command("list")
def dead_letters_list(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    """Where each came from, and what was wrong with it.

    Example: wharfinger dead-letters list"""
    from wharfinger_cli import dead_letters

    dead_letters.list_letters(_request(context, data_dir, output))


@letters.command("retry")
def dead_letters_retry(
    context: typer.Context,
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one.")] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Send the original bytes to their topic again.

    Example: wharfinger dead-letters retry 12"""
    from wharfinger_cli import dead_letters

    dead_letters.retry(_request(context, data_dir, output), id_)


schemas = typer.Typer(help="The contract, for other programs.", no_args_is_help=True)
app.add_typer(schemas, name="schema", rich_help_panel=HISTORY)


@schemas.command("export")
def schema_export(directory: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Write a JSON Schema for every event and an AsyncAPI 3 document.

    Example: wharfinger schema export schemas"""
    from wharfinger_cli import schema

    schema.export(directory)


@schemas.command("kinds")
def schema_kinds() -> None:
    """Print every kind that `apply` reads, what it becomes, and which of its fields steer
    placement.

    Example: wharfinger schema kinds"""
    from wharfinger_cli import schema

    schema.print_kinds()
