"""Why names in recorded data cannot be replaced by others, in the words of the error."""

from __future__ import annotations

COMPARED_TEXTS = "chooses clusters by texts that are compared, which new names would change"
NAMES_OF_NODES = (
    "nodes were bought or emptied by names of types, zones and labels, which new names would change"
)
NAMES_OF_STREAMS = "names every stream it is about; export this part without new names"
DIGESTS = "was refused because of digests of its inputs, which new names would change"
ANSWERED_IN_WORDS = "was answered by an extender, in words of its own that hold names"
