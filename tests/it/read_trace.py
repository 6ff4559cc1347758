"""Reads a trace with Perfetto's compiled protos and tells its tracks; fails where it breaks a rule.

Rules: no unknown field, every event on a track that was described before it, times in order on each
track, begins and ends paired, flows with two ends.
"""

import sys
from collections import Counter, defaultdict

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

trace = protos.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())


def known(message):
    assert not len(unknown_fields.UnknownFieldSet(message)), message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                known(inner)


known(trace)
tracks, depth, last, events, flows = {}, Counter(), defaultdict(int), Counter(), Counter()
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks
        assert not track.HasField("parent_uuid") or track.parent_uuid in tracks
        tracks[track.uuid] = track
        continue
    event = packet.track_event
    assert event.track_uuid in tracks
    assert packet.timestamp >= last[event.track_uuid]
    last[event.track_uuid] = packet.timestamp
    begins = event.type == protos.TrackEvent.TYPE_SLICE_BEGIN
    depth[event.track_uuid] += 1 if begins else -1
    assert depth[event.track_uuid] >= 0
    if begins:
        assert event.name
        events[event.track_uuid] += 1
        flows.update(event.flow_ids)
assert not any(depth.values())


def path(track):
    name = "thread" if track.HasField("thread") else track.name
    return (path(tracks[track.parent_uuid]) + " / " if track.parent_uuid else "") + name


for uuid, track in tracks.items():
    print(f"{path(track)}: {events[uuid]} slices")
print(f"{sum(1 for ends in flows.values() if ends > 1)} flows with both ends")
