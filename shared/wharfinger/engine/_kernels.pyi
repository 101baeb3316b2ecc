from typing import Any

SOURCES: str

def __getattr__(name: str) -> Any: ...
