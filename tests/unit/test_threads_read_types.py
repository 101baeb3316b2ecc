"""Threads that decode values of a type for the first time, all at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TYPES = 30

MODULE = "from __future__ import annotations\nimport msgspec\n" + "".join(
    f"""
class Outer{n}(msgspec.Struct):
    number: int
    names: dict[str, int]
    inner: Inner{n}

class Inner{n}(msgspec.Struct):
    parts: list[Part{n}]
    text: str = ""

class Part{n}(msgspec.Struct):
    words: tuple[str, ...] = ()
"""
    for n in range(TYPES)
)

PROGRAM = f"""
import sys
import threading

import structs

from wharfinger.domain.value import converted, json_decoder

sys.setswitchinterval(1e-6)
together = threading.Barrier(4)
BODY = b'{{"number":1,"names":{{"a":1}},"inner":{{"parts":[{{"words":["w"]}}]}}}}'


def decode() -> None:
    for n in range({TYPES}):
        outer, inner = getattr(structs, f"Outer{{n}}"), getattr(structs, f"Inner{{n}}")
        together.wait()
        assert json_decoder(outer).decode(BODY).inner.parts[0].words == ("w",)
        assert converted({{"parts": []}}, inner).text == ""


threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("decoded")
"""


def test_they_do_not_end_the_process(tmp_path: Path) -> None:
    (tmp_path / "structs.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "decoded\n"), ended.stderr
