"""What the processes of a plane set of Python itself."""

from __future__ import annotations

import subprocess
import sys

READS = """
import asyncio
import socket
from wharfinger.runtime.interpreter import READ_BYTES, small_reads

small_reads()
sent = 5 * READ_BYTES + 7


class Receiver(asyncio.Protocol):
    def __init__(self):
        self.pieces, self.ended = [], asyncio.Event()

    def data_received(self, data):
        self.pieces.append(len(data))

    def connection_lost(self, error):
        self.ended.set()


async def main():
    ours, theirs = socket.socketpair()
    receiver = Receiver()
    await asyncio.get_running_loop().create_connection(lambda: receiver, sock=ours)
    await asyncio.to_thread(theirs.sendall, bytes(sent))
    theirs.close()
    await receiver.ended.wait()
    print(max(receiver.pieces) <= READ_BYTES, sum(receiver.pieces) == sent)


asyncio.run(main())
"""


def test_sockets_are_read_in_small_pieces() -> None:
    done = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


TURNS = """
import sys
import threading
import time
from wharfinger.runtime.interpreter import short_turns

if "short" in sys.argv:
    short_turns()
computing = True


def compute():
    while computing:
        pass


thread = threading.Thread(target=compute)
thread.start()
began_s = time.process_time()
for _ in range(200):
    time.sleep(0)
took_s = time.process_time() - began_s
computing = False
thread.join()
print(took_s)
"""


def test_a_thread_that_waits_for_the_interpreter_gets_it_sooner() -> None:
    """Measured in what the other thread computed meanwhile, which another load does not change."""

    def computed(*asked: str) -> float:
        command = [sys.executable, "-c", TURNS, *asked]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert computed("short") < computed() / 2
