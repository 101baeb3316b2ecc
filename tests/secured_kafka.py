"""An Apache Kafka of a test's own that takes connections by TLS only and asks every request for its
rights."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex

from cryptography import x509
from infra.kafka import local
from tests.providers import Authority

from wharfinger.runtime.backends import DURABLE, Backend, KafkaSecurity, SaslMechanism

ADMIN = "admin"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
DENIED = "is Denied operation"

PROPERTIES = """\
inter.broker.listener.name=SECURED
listener.security.protocol.map=CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,MUTUAL:SSL
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
ssl.keystore.type=PEM
ssl.truststore.type=PEM
listener.name.mutual.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/
"""
"""What differs from the broker of other tests. `ANONYMOUS` is the broker on its own controller's
port."""


CALLS = """\
import java.nio.file.*;
import java.util.*;

class Calls {
    public static void main(String[] arguments) throws Exception {
        List<String> words = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            if (!line.isEmpty()) {
                words.add(line);
                continue;
            }
            org.apache.kafka.tools.AclCommand.main(words.toArray(new String[0]));
            words.clear();
        }
    }
}
"""
"""Runs Kafka's tool with the words of each call: one a line, calls divided by empty lines."""


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """`secured`: host:port where users have passwords; `mutual`: where they have certificates."""

    directory: Path
    secured: str
    mutual: str
    authority: Authority
    passwords: dict[str, str] = field(repr=False)

    def backend(self, user: str, mechanism: SaslMechanism = "SCRAM-SHA-512") -> Backend:
        """As a user with a password. It has no database."""
        security = KafkaSecurity(
            "SASL_SSL", mechanism, user, self.passwords[user], self.authority.file
        )
        return Backend(self.secured, "postgresql+asyncpg://none@/none", DURABLE, security=security)

    def by_certificate(self, user: str) -> Backend:
        cert, key = self.authority.certificate(user)
        security = KafkaSecurity("SSL", ca_file=self.authority.file, cert_file=cert, key_file=key)
        return Backend(self.mutual, "postgresql+asyncpg://none@/none", DURABLE, security=security)

    def environment(self, user: str) -> dict[str, str]:
        """What names this broker to a process of ours."""
        return {
            "WHARFINGER_KAFKA": self.secured,
            "WHARFINGER_KAFKA_SECURITY": "SASL_SSL",
            "WHARFINGER_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "WHARFINGER_KAFKA_USERNAME": user,
            "WHARFINGER_KAFKA_PASSWORD": self.passwords[user],
            "WHARFINGER_KAFKA_CA_FILE": str(self.authority.file),
        }

    def run(self, commands: Sequence[str]) -> None:
        """Commands of a shell that call `kafka-acls.sh`, as an administrator. The shell gives the
        arguments, and one Java process runs all calls: to start one for each takes minutes."""
        tools = self.directory / "bin"
        tools.mkdir(exist_ok=True)
        script, calls = tools / "kafka-acls.sh", self.directory / "calls"
        script.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" '' >> '{calls}'\n")
        script.chmod(0o700)
        config = self.directory / "admin.properties"
        config.write_text(
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.jaas.config={_scram(ADMIN, self.passwords[ADMIN])}\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.authority.file}\n"
        )
        surroundings = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "KAFKA": self.secured,
            "ADMIN_CONFIG": str(config),
        }
        subprocess.run(["sh", "-e", "-c", "\n".join(commands)], env=surroundings, check=True)
        source = self.directory / "Calls.java"
        source.write_text(CALLS)
        classpath = f"{local.jars(self.directory)}/*"
        done = subprocess.run(
            [local.tool("java"), *QUICK, "-cp", classpath, str(source), str(calls)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("Adding ACLs for resource") >= len(commands), done.stdout

    def denied(self) -> list[str]:
        """What the broker has refused, by its own log."""
        text = (self.directory / "broker.log").read_text(errors="replace")
        return [line for line in text.splitlines() if DENIED in line]

    def stop(self) -> None:
        local.stop(self.directory)


def start(directory: Path, users: Sequence[str]) -> SecuredKafka:
    """A broker with these users and nothing on it. LocalKafkaError: it did not start."""
    directory.mkdir(parents=True)
    authority = Authority(directory / "certificates")
    loopback = (x509.IPAddress(ip_address("127.0.0.1")),)
    cert, key = authority.certificate("broker", loopback)
    keystore = directory / "certificates" / "keystore.pem"
    keystore.write_text(key.read_text() + cert.read_text())
    passwords = {user: token_hex(16) for user in (ADMIN, *users)}
    plain = "".join(f' user_{user}="{password}"' for user, password in passwords.items())
    lines = [
        PROPERTIES,
        f"ssl.keystore.location={keystore}",
        f"ssl.truststore.location={authority.file}",
        f"listener.name.secured.scram-sha-512.sasl.jaas.config={_scram(ADMIN, passwords[ADMIN])}",
        "listener.name.secured.plain.sasl.jaas.config="
        f"org.apache.kafka.common.security.plain.PlainLoginModule required{plain};",
    ]
    listening: list[str] = []

    def configured(directory: Path) -> str:
        listening[:] = local.write_properties(directory, ["SECURED", "MUTUAL"], lines)
        return listening[0]

    scram = "--add-scram=SCRAM-SHA-512=[name={},password={}]"
    users_with_passwords = [scram.format(*pair) for pair in passwords.items()]
    local.start(directory, configured, users_with_passwords)
    secured, mutual = listening
    return SecuredKafka(directory, secured, mutual, authority, passwords)


def _scram(user: str, password: str) -> str:
    return (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";'
    )
