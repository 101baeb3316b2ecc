"""What comes from the ledger, from bytes and back: `message_codec` with the types of it alone.

Decisions are read by this one everywhere. Of the events that a round took in, and of those that are
read from topics, every type may come: `codec`.
"""

from __future__ import annotations

from wharfinger.events.ledger_types import LEDGER_TYPES
from wharfinger.events.message_codec import MessageCodec

_codec = MessageCodec(LEDGER_TYPES)

decode_data = _codec.decode_data
decode_data_to_fold = _codec.decode_data_to_fold
encode = _codec.encode
made = _codec.made
type_of = _codec.type_of
