"""A client of HTTP/3 by aioquic: `quic.py PORT CA DIGEST`, where DIGEST is the SHA-256 of /large. It
does what tests/tests/http3/clients.rs says, and prints a line for each deed."""

import asyncio
import hashlib
import sys
from collections import deque

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

PORT, AUTHORITY, DIGEST = int(sys.argv[1]), sys.argv[2], sys.argv[3]
UPLOAD = bytes(index * 7 % 251 for index in range(300_000))
PARALLEL = 4


class Client(QuicConnectionProtocol):
    """A connection of HTTP/3."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.answers = {}

    def quic_event_received(self, event):
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            for _, _, done in self.answers.values():
                if not done.done():
                    done.set_exception(RuntimeError(str(event)))
        for came in self.http.handle_event(event):
            if not isinstance(came, (HeadersReceived, DataReceived)):
                continue
            head, body, done = self.answers[came.stream_id]
            if isinstance(came, HeadersReceived):
                head.update(came.headers)
            else:
                body.append(came.data)
            if came.stream_ended and not done.done():
                done.set_result((int(head[b":status"]), b"".join(body)))

    def begin(self, path, body=None, fields=()):
        """Sends a request; its answer is to be awaited."""
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        self.answers[stream] = ({}, deque(), done)
        method = b"GET" if body is None else b"POST"
        head = [
            (b":method", method),
            (b":scheme", b"https"),
            (b":authority", b"localhost"),
            (b":path", path.encode()),
            *fields,
        ]
        self.http.send_headers(stream, head, end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        return done

    async def get(self, path):
        status, body = await self.begin(path)
        assert status == 200, (path, status)
        return body

    async def move(self):
        """Goes on from another port."""
        before = self._transport
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=("::", 0))
        # The end of the old one is not the connection's.
        before.abort()


tickets = []


def configuration(**more):
    made = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost", **more)
    made.load_verify_locations(AUTHORITY)
    return made


def dial(**more):
    named = {"wait_connected": more.pop("wait_connected", True)}
    return connect(
        "127.0.0.1",
        PORT,
        configuration=configuration(**more),
        create_protocol=Client,
        session_ticket_handler=tickets.append,
        **named,
    )


async def main():
    async with dial() as client:
        print("small", (await client.get("/small")).decode())
        status, body = await client.begin("/echo", UPLOAD)
        print("upload", status, body == UPLOAD)
        large = await asyncio.gather(*(client.get("/large") for _ in range(PARALLEL)))
        print("large", {hashlib.sha256(body).hexdigest() == DIGEST for body in large})
        status, body = await client.begin("/large", fields=[(b"range", b"bytes=1000000-1000009")])
        print("range", status, len(body))
        client.request_key_update()
        print("key", (await client.get("/small")).decode())
        client.change_connection_id()
        print("id", (await client.get("/small")).decode())
        before = (await client.get("/address")).split()
        # An answer is on its way meanwhile.
        going = client.begin("/large")
        await client.move()
        after = (await client.get("/address")).split()
        print("moved", before[0] == after[0], before[1] != after[1])
        print("meanwhile", hashlib.sha256((await going)[1]).hexdigest() == DIGEST)
    async with dial(session_ticket=tickets[-1], wait_connected=False) as client:
        body = await client.get("/small")
        tls = client._quic.tls
        print("again", body.decode(), tls.session_resumed, tls.early_data_accepted)


asyncio.run(main())
