"""Every event to bytes and back: `message_codec` with all types of the registry."""

from __future__ import annotations

from wharfinger.events.message_codec import SCHEMA_ROOT as SCHEMA_ROOT
from wharfinger.events.message_codec import MessageCodec
from wharfinger.events.message_codec import UndecodableError as UndecodableError
from wharfinger.events.message_codec import encode_raw as encode_raw
from wharfinger.events.message_codec import frame_of as frame_of
from wharfinger.events.registry import EVENT_TYPES

_codec = MessageCodec(EVENT_TYPES)

decode = _codec.decode
decode_recorded = _codec.decode_recorded
decode_data = _codec.decode_data
decode_data_to_fold = _codec.decode_data_to_fold
encode = _codec.encode
made = _codec.made
