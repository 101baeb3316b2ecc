"""The commands, their arguments and their help: the table of contents of the command line.

Each body only imports the module that does the work and hands over what was asked for. Those imports stand inside on
purpose: `wharfinger --help` must not wait for a database driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from wharfinger_cli.output import Format

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="wharfinger",
    help="Places workloads on fleets of Kubernetes clusters, and keeps the book in which every placement stands.",
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP,
)  # fmt: skip

PLANE = "The plane"
INTAKE = "Tell it"
ANSWERS = "Ask it"
HISTORY = "Its history"

Dir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where the plane keeps its state.  [default: ./.wharfinger]"),
]
Out = Annotated[Format | None, typer.Option("--output", "-o", help="How the answer looks.")]
Stream = Annotated[
    str,
    typer.Option(
        "--stream", metavar="NAME", help="A stream or the beginning of its name: `fleet` is all fleet shards."
    ),
]
Manifests = Annotated[
    list[str],
    typer.Option(
        "--filename", "-f", metavar="FILE|DIR|-", help="A manifest, a directory of them, or - for standard input."
    ),
]


@dataclass(frozen=True, slots=True)
class Request:
    """What every command is asked with. `data_dir` None: as the environment, or the default."""

    data_dir: Path | None
    format: Format

    @property
    def flags(self) -> dict[str, object]:
        return {} if self.data_dir is None else {"data_dir": self.data_dir}


@app.callback()
def wharfinger(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    context.obj = Request(data_dir, output or Format.TABLE)


def _request(context: typer.Context, data_dir: Path | None, output: Format | None = None) -> Request:
    """Options may stand before or behind the command; behind wins, since it was said last."""
    before = context.find_object(Request) or Request(None, Format.TABLE)
    return Request(data_dir or before.data_dir, output or before.format)


@app.command(rich_help_panel=PLANE)
def up(
    context: typer.Context,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when the plane is ready; leave it running.")
    ] = False,
    processes: Annotated[
        Literal["one", "each"] | None, typer.Option(help="All services in one process, or each in its own.")
    ] = None,
    data_dir: Dir = None,
) -> None:
    """Start the plane: broker, database and services, whatever of it is not named by the environment."""
    from wharfinger_cli import lifecycle

    lifecycle.up(_request(context, data_dir), detach=detach, processes=processes)


@app.command(rich_help_panel=PLANE)
def down(context: typer.Context, data_dir: Dir = None) -> None:
    """Stop the plane, all of it, also when its supervisor was killed. What it knows stays in the data directory."""
    from wharfinger_cli import lifecycle

    lifecycle.down(_request(context, data_dir))


@app.command(rich_help_panel=PLANE)
def status(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    """Who runs, who is ready, how far behind, and where every stream stands."""
    from wharfinger_cli import status as module

    module.status(_request(context, data_dir, output))


@app.command(rich_help_panel=PLANE)
def doctor(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    """Check everything the plane needs, one line each. Ends with 1 when something is wrong."""
    from wharfinger_cli import doctor as module

    module.doctor(_request(context, data_dir, output))


@app.command(rich_help_panel=PLANE)
def migrate(context: typer.Context, data_dir: Dir = None) -> None:
    """Bring schema and topics of the named database and broker to this version. `up` does it by itself."""
    from wharfinger_cli import lifecycle

    lifecycle.migrate(_request(context, data_dir))


@app.command(rich_help_panel=PLANE)
def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data directory when it is done.")] = False,
    data_dir: Dir = None,
) -> None:
    """See it work in a minute: a fleet is scheduled, a cluster falls silent, and the ledger proves what happened."""
    from wharfinger_cli import demo as module

    module.demo(_request(context, data_dir), keep=keep)


@app.command(rich_help_panel=INTAKE)
def apply(context: typer.Context, filename: Manifests, data_dir: Dir = None, output: Out = None) -> None:
    """Accept manifests (Karmada, OCM, crane, Karpenter, Kubernetes). All of them are good, or nothing is accepted."""
    from wharfinger_cli import apply as module

    module.apply(_request(context, data_dir, output), filename)


@app.command(rich_help_panel=INTAKE)
def delete(context: typer.Context, filename: Manifests, data_dir: Dir = None, output: Out = None) -> None:
    """Withdraw what the manifests name."""
    from wharfinger_cli import apply as module

    module.delete(_request(context, data_dir, output), filename)


imports = typer.Typer(help="Read a fleet and its workloads from elsewhere.", no_args_is_help=True)
app.add_typer(imports, name="import", rich_help_panel=INTAKE)


@imports.command("openb")
def import_openb(
    context: typer.Context,
    nodes: Annotated[Path, typer.Option("--nodes", metavar="FILE", help="Node list, CSV, may be gzipped.")],
    pods: Annotated[Path, typer.Option("--pods", metavar="FILE", help="Pod list, CSV, may be gzipped.")],
    clusters: Annotated[int, typer.Option(min=1, max=1523, help="Spread the nodes over so many clusters.")] = 8,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Bindings a second.  [default: as fast as can be]")
    ] = None,
    strategy: Annotated[
        Literal["dynamic", "aggregated"], typer.Option(help="Spread by available room, or pack into few clusters.")
    ] = "dynamic",
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """The public Alibaba openb trace: nodes as clusters, one binding a pod in order of arrival. Repeatable."""
    from wharfinger_cli import bulk

    bulk.import_openb(_request(context, data_dir, output), nodes, pods, clusters, rate, strategy)


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
        Path | None, typer.Option("--out", metavar="FILE", help="Write the events, one a line; `apply -f` reads them.")
    ] = None,
    apply_: Annotated[bool, typer.Option("--apply", help="Tell them to the plane.")] = False,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """A fleet with regions, zones, clouds, taints and GPUs, and bindings of every placement."""
    from wharfinger_cli import bulk
    from wharfinger_cli.generate import FleetPlan

    bulk.generate_fleet(
        _request(context, data_dir, output), FleetPlan(clusters, nodes, bindings, seed), out, apply=apply_
    )


@app.command(rich_help_panel=ANSWERS)
def get(
    context: typer.Context,
    what: Annotated[Literal["clusters", "nodes", "bindings", "policies"], typer.Argument()],
    name: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """What the plane knows, and where its bindings are now."""
    from wharfinger_cli import facts

    facts.get(_request(context, data_dir, output), what, name)


@app.command(rich_help_panel=ANSWERS)
def decisions(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new ones as they are committed.")] = False,
    stream: Stream = "",
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="From then on: 2026-11-21T05:00:00Z, or an age such as 90s, 10m, 2h, 1d."),
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Every decision from the beginning, in the order of its stream. With -o json one a line."""
    from wharfinger_cli import decisions as module

    module.decisions(_request(context, data_dir, output), follow=follow, stream=stream, since=since, limit=limit)


@app.command(rich_help_panel=ANSWERS)
def explain(
    context: typer.Context,
    binding: Annotated[str, typer.Argument(help="namespace/name, or the name where only one binding has it.")],
    decision: Annotated[
        str, typer.Option("--decision", metavar="ID", help="This decision instead of the latest.")
    ] = "",
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Why it is where it is: the decision as it was recorded, what it led to, and what came before."""
    from wharfinger_cli import explain as module

    module.explain(_request(context, data_dir, output), binding, decision)


audits = typer.Typer(help="Prove that the history is as it was written.", no_args_is_help=True)
app.add_typer(audits, name="audit", rich_help_panel=HISTORY)


@audits.command("verify")
def audit_verify(context: typer.Context, stream: Stream = "", data_dir: Dir = None, output: Out = None) -> None:
    """Walk chains, heads and snapshots, and name the first bad row. Ends with 1 when there is one."""
    from wharfinger_cli import audit

    audit.verify(_request(context, data_dir, output), stream)


@app.command(rich_help_panel=HISTORY)
def replay(
    context: typer.Context,
    stream: Stream = "",
    from_: Annotated[int | None, typer.Option("--from", min=1, metavar="ROUND", help="First round.")] = None,
    to: Annotated[int | None, typer.Option("--to", min=1, metavar="ROUND", help="Last round.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the streams. Default: one a core.")
    ] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Take every recorded decision again and compare bytes. Ends with 1 when one differs."""
    from wharfinger_cli import history

    history.replay(_request(context, data_dir, output), stream, from_, to, workers)


letters = typer.Typer(help="Messages nobody could read.", no_args_is_help=True)
app.add_typer(letters, name="dead-letters", rich_help_panel=HISTORY)


@letters.command("list")
def dead_letters_list(context: typer.Context, data_dir: Dir = None, output: Out = None) -> None:
    """Where each came from, and what was wrong with it."""
    from wharfinger_cli import dead_letters

    dead_letters.list_letters(_request(context, data_dir, output))


@letters.command("retry")
def dead_letters_retry(
    context: typer.Context,
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one.")] = None,
    data_dir: Dir = None,
    output: Out = None,
) -> None:
    """Send the original bytes to their topic again."""
    from wharfinger_cli import dead_letters

    dead_letters.retry(_request(context, data_dir, output), id_)


schemas = typer.Typer(help="The contract, for other programs.", no_args_is_help=True)
app.add_typer(schemas, name="schema", rich_help_panel=HISTORY)


@schemas.command("export")
def schema_export(directory: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Write a JSON Schema for every event and an AsyncAPI 3 document."""
    from wharfinger_cli import schema

    schema.export(directory)
