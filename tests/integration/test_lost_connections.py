"""What the Kafka client does on a connection that the broker has reset."""

# mypy: allow-untyped-calls
# (the drivers ship no types)

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest
from tests.patience import eventually

RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing resets."""


async def test_a_request_on_a_connection_that_was_reset_is_an_error_of_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection = AIOKafkaConnection(host="127.0.0.1", port=port)
        connection._reader, connection._writer = reader, writer
        # one that has not noticed yet
        connection._read_task = asyncio.get_running_loop().create_future()
        connection._versions = {MetadataRequest.API_KEY: (0, 1)}
        accepted.close()
        await eventually(writer.transport.is_closing)
        with pytest.raises(KafkaConnectionError, match="reset"):
            connection.send(MetadataRequest([]))
        assert not connection.connected()
        with pytest.raises(KafkaConnectionError):
            connection._send_sasl_token(b"token")
