#!/usr/bin/env python3
"""spoil empty|nan REPORT: changes an ncu report into one that a broken collection leaves. Everything else stays.

`empty` leaves out the blocks with results; `nan` makes every number of every metric NaN.
"""

import math
import struct
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def as_varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def fields(message):
    """(number, wire type, value) of each field; the value of a length-delimited one is its bytes."""
    at, found = 0, []
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(message, at)
        elif kind == 2:
            length, at = varint(message, at)
            value, at = message[at:at + length], at + length
        else:
            length = 8 if kind == 1 else 4
            value, at = message[at:at + length], at + length
        found.append((tag >> 3, kind, value))
    return found


def message(found):
    out = bytearray()
    for number, kind, value in found:
        out += as_varint(number << 3 | kind)
        if kind == 0:
            out += as_varint(value)
        else:
            out += (as_varint(len(value)) if kind == 2 else b"") + value
    return bytes(out)


def within(found, number, change):
    return [(n, k, change(v)) if n == number and k == 2 else (n, k, v) for n, k, v in found]


NAN = message([(3, 1, struct.pack("<d", math.nan))])


def metric_without_number(metric):
    """Keeps strings, because they are not numbers."""
    spoiled = within(fields(metric), 2, lambda value: value if any(n == 1 for n, _, _ in fields(value)) else NAN)
    return message([field for field in spoiled if field[0] != 3])


def result_without_numbers(result):
    return message(within(fields(result), 13, metric_without_number))


def spoil(report, how):
    header = 8 + struct.unpack_from("<I", report, 4)[0]
    out, at = bytearray(report[:header]), header
    while at < len(report):
        size = struct.unpack_from("<I", report, at)[0]
        head = fields(report[at + 4:at + 4 + size])
        at += 4 + size
        number = {n: v for n, k, v in head if k == 0}
        payload, at = report[at:at + number.get(5, 0)], at + number.get(5, 0)
        if how == "empty" and number.get(2, 0):
            continue
        entries, within_payload = [], 0
        while within_payload < len(payload):
            length = struct.unpack_from("<I", payload, within_payload)[0]
            entries.append(payload[within_payload + 4:within_payload + 4 + length])
            within_payload += 4 + length
        first = number.get(1, 0)
        last = first + number.get(2, 0)
        entries = [result_without_numbers(e) if first <= i < last else e for i, e in enumerate(entries)]
        payload = b"".join(struct.pack("<I", len(e)) + e for e in entries)
        head = message([(n, k, len(payload) if n == 5 else v) for n, k, v in head])
        out += struct.pack("<I", len(head)) + head + payload
    return bytes(out)


def main():
    how, path = sys.argv[1:]
    with open(path, "rb") as file:
        report = file.read()
    with open(path, "wb") as file:
        file.write(spoil(report, how))


if __name__ == "__main__":
    main()
