"""Two agents of wire version 1, written from wire-spec.md and from nothing else of this tree: they do not change with it.

    version_1.py HOST PORT FILE: FILE is in the root directory; plain datagrams.

They are writers and lock clients (section 10.5) that ask for one thing at a time. What they find out is said in lines; the first thing that is not as version 1 has it
ends them.
"""

import os
import socket
import struct
import sys
import time
import zlib

HELLO, CHALLENGE, WELCOME, CONFIRM, OPENED = 0x01, 0x02, 0x03, 0x06, 0x07
KEEPALIVE, RELEASE, END_SESSION, PATH_CHALLENGE, PATH_RESPONSE, RECEIPT = 0x10, 0x11, 0x14, 0x15, 0x16, 0x28
DEMAND, GRANT, PROBE = 0x20, 0x21, 0x23
LOOKUP, CREATE, READ, WRITE, LOCK = 0x40, 0x44, 0x50, 0x52, 0x60
ACK, PENDING, QUEUED, ALIVE, RELEASED, ENDED = 0x80, 0x81, 0x82, 0x85, 0x86, 0x88
FAILED, WALKED, DATA, CHANGED, GRANTED, LOCK_REFUSED = 0x01, 0x02, 0x05, 0x06, 0x07, 0x08
ADVISORY, EXCLUSIVE, TRY, QUEUE, RECEIVED, IN_USE = 2, 2, 0, 1, 0, 1
STALE_GUARD = 1026
ROOT = 1
ATTR = struct.Struct(">QQBHIIIQqqqQI")
assert ATTR.size == 75


def bytes8(data):
    return struct.pack(">B", len(data)) + data


def terms(guard=(0, 0)):
    return struct.pack(">BQQHH", 0, *guard, 0, 0)


class Agent:
    def __init__(self, server, label):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(server)
        self.session, self.packet, self.nonce, self.serial = 0, 0, 0, 1
        self.heard = []
        handshake, self.first = (int.from_bytes(os.urandom(6)) | 1 for _ in range(2))
        me = (os.urandom(16), 1, bytes(16), bytes(16), 0, 0, 0, self.first)
        hello = struct.pack(">QBBHHQ16sQ16s16sBQQQ", handshake, 1, 1, 64, 1232, 0, *me) + bytes8(label)
        challenge = self.asks(HELLO, hello + bytes8(b""), CHALLENGE, handshake)
        (length,) = struct.unpack_from(">B", challenge, 16)
        cookie = challenge[17:]
        assert len(cookie) == length
        welcome = self.asks(HELLO, hello + bytes8(cookie), WELCOME, handshake)
        told = struct.unpack(">QQBQQ16sBQQQIIIHHQ", welcome)
        version, session, lease_us, window, datagram = told[2], told[3], told[9], told[13], told[14]
        assert version == 1 and session != 0 and lease_us > 0 and 1 <= window <= 64 and 548 <= datagram <= 1232, told
        self.session, self.packet = session, self.first - 1
        opened = self.asks(CONFIRM, struct.pack(">QH", 1, 0), OPENED, 1)
        assert len(opened) == 16 + 2 + 32 + 4 and opened[16:18] == bytes(2), opened

    def sends(self, kind, body):
        self.packet += 1
        text = struct.pack(">BBBBQQBBH", 0xC5, 1, 0, 0, self.session, self.packet, kind, 0, len(body)) + body
        self.socket.send(text + struct.pack(">I", zlib.crc32(text)))
        return self.packet

    def hears(self, seconds):
        """Takes in one datagram, if one comes."""
        self.socket.settimeout(seconds)
        try:
            text = self.socket.recv(9000)
        except TimeoutError:
            return
        magic, version, form, flags, session, packet = struct.unpack_from(">BBBBQQ", text)
        assert (magic, version, form, flags, session) == (0xC5, 1, 0, 1, self.session) and packet > 0, text
        assert struct.unpack(">I", text[-4:])[0] == zlib.crc32(text[:-4])
        at = 20
        while at < len(text) - 4:
            kind, zero, length = struct.unpack_from(">BBH", text, at)
            body = text[at + 4 : at + 4 + length]
            assert zero == 0 and len(body) == length and at + 4 + length <= len(text) - 4
            at += 4 + length
            if kind == PATH_CHALLENGE:
                self.sends(PATH_RESPONSE, body)
            elif kind == PROBE:
                self.sends(RECEIPT, body + bytes([RECEIVED]))
            elif kind != PENDING:
                self.heard.append((kind, body))

    def awaits(self, kinds, number, seconds):
        """The message of these kinds that begins with a number; None: it has not come in time."""
        until = time.monotonic() + seconds
        while True:
            for message in self.heard:
                kind, body = message
                if kind in kinds and (number is None or struct.unpack_from(">Q", body)[0] == number):
                    self.heard.remove(message)
                    return message
            left = until - time.monotonic()
            if left <= 0:
                return None
            self.hears(left)

    def asks(self, kind, body, answers, number):
        """Sends until it is answered; the answer, which echoes one of the transmissions."""
        sent = []
        for _ in range(40):
            sent.append(self.sends(kind, body))
            answer = self.awaits([answers] if isinstance(answers, int) else answers, number, 0.5)
            if answer is not None:
                echo = struct.unpack_from(">Q", answer[1], 8)[0]
                assert echo in sent, (answer, sent)
                return answer[1] if isinstance(answers, int) else answer
        raise AssertionError(f"no answer to {kind:#x}")

    def requests(self, kind, body):
        """A request under the next nonce; the kind of its answer, and that without nonce and echo."""
        self.nonce += 1
        answered, body = self.asks(kind, struct.pack(">QHH", self.nonce, 0, 1232) + body, [ACK, QUEUED], self.nonce)
        return answered, body[16:]

    def replies(self, kind, body, reply):
        answered, told = self.requests(kind, body)
        assert answered == ACK and told[0] == reply, (answered, told)
        return told[1:]

    def controls(self, kind, body, answer):
        self.serial += 1
        return self.asks(kind, struct.pack(">Q", self.serial) + body, answer, self.serial)

    def changed(self, kind, body, guard=(0, 0)):
        """The version before and the attributes after a change of one object."""
        told = self.replies(kind, body + terms(guard), CHANGED)
        (count,) = struct.unpack_from(">H", told)
        assert len(told) == 2 + count * 92
        return [(struct.unpack_from(">Q", told, at)[0], ATTR.unpack_from(told, at + 8)) for at in range(2, len(told), 92)]

    def finds(self, name):
        told = self.replies(LOOKUP, struct.pack(">QBH", ROOT, 0, 1) + bytes8(name), WALKED)
        status, steps = struct.unpack_from(">HH", told)
        assert (status, steps, len(told)) == (0, 2, 4 + 2 * 84 + 2), told
        return ATTR.unpack_from(told, 4 + 84)[0]

    def writes(self, object, data, guard=(0, 0)):
        body = struct.pack(">QQBQH", object, 0, 1, 0, len(data)) + data
        return self.changed(WRITE, body, guard)

    def write_fails(self, object, data, guard):
        body = struct.pack(">QQBQH", object, 0, 1, 0, len(data)) + data
        return struct.unpack(">HI", self.replies(WRITE, body + terms(guard), FAILED))[0]

    def reads(self, object):
        told = self.replies(READ, struct.pack(">QQIQB", object, 0, 1000, 0, 0), DATA)
        (length,) = struct.unpack_from(">H", told, 75 + 9 + 8)
        data = told[75 + 9 + 8 + 2 :]
        assert len(data) == length == ATTR.unpack_from(told)[7]
        return data

    def locks(self, object, how):
        return self.requests(LOCK, struct.pack(">QBB", object, EXCLUSIVE, how))

    def gives_back(self, object, generation):
        item = struct.pack(">QBQB", object, ADVISORY, generation, 0)
        told = self.controls(RELEASE, struct.pack(">H", 1) + item, RELEASED)[16:]
        assert told == struct.pack(">H", 1) + item + struct.pack(">Q", 0), told

    def ends(self):
        self.controls(END_SESSION, bytes([1]), ENDED)


def granted(told):
    """The generation of a lock that was granted at once."""
    answered, told = told
    assert answered == ACK and told[0] == GRANTED, (answered, told)
    object, kind, mode, generation, run = struct.unpack(">QBBQI", told[1:])
    assert (kind, mode) == (ADVISORY, EXCLUSIVE) and run >= 1
    return generation


def main():
    host, port, name = sys.argv[1], int(sys.argv[2]), os.fsencode(sys.argv[3])
    one, two = Agent((host, port), b"one of version 1"), Agent((host, port), b"two of version 1")
    there = one.finds(name)
    print("found", one.reads(there).decode())
    # Making it anew changes nothing.
    named = struct.pack(">Q", ROOT) + bytes8(name)
    made = one.changed(CREATE, named + struct.pack(">BHIIB", 0, 0o644, 0, 0, 0))
    assert made[0][1][0] == there and made[0][0] == made[0][1][1], made
    first = granted(one.locks(there, TRY))
    answered, told = two.locks(there, QUEUE)
    assert answered == QUEUED and struct.unpack_from(">QBI", told) == (there, ADVISORY, 0), told
    queued = two.nonce
    _, demand = one.awaits([DEMAND], None, 20) or (None, b"")
    seq, object, kind, generation, keep = struct.unpack(">QQBQB", demand)
    assert (object, kind, generation, keep) == (there, ADVISORY, first, 0), demand
    one.sends(RECEIPT, struct.pack(">QB", seq, IN_USE))
    one.controls(KEEPALIVE, struct.pack(">Q", time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // 1000), ALIVE)
    answered, told = one.locks(there, TRY)
    # Somebody waits: no further token.
    assert answered == ACK and told[0] == LOCK_REFUSED, told
    one.writes(there, b"written by one", (there, first))
    one.gives_back(there, first)
    _, grant = two.awaits([GRANT], None, 20) or (None, b"")
    seq, nonce, object, kind, mode, second, run = struct.unpack(">QQQBBQI", grant)
    assert (nonce, object, kind, mode) == (queued, there, ADVISORY, EXCLUSIVE) and second > first and run >= 1, grant
    two.sends(RECEIPT, struct.pack(">QB", seq, RECEIVED))
    assert two.reads(there) == b"written by one"
    assert one.write_fails(there, b"too late", (there, first)) == STALE_GUARD
    two.writes(there, b"written by two of version 1", (there, second))
    one.ends()
    two.ends()
    print("token", second)


main()
