"""A client that floods a server with frames of QUIC, by aioquic: `quic_floods.py PORT CA KIND`. It
goes on until the server ends the connection, and prints the code that it is told then."""

import asyncio
import os
import sys

from aioquic import tls
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection, QuicConnectionId
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicFrameType, QuicPacketType

PORT, AUTHORITY, KIND = int(sys.argv[1]), sys.argv[2], sys.argv[3]
FRAMES_PER_PACKET = {"pings": 500, "challenges": 100, "given": 3, "taken": 0}[KIND]

write_as_usual = QuicConnection._write_application


def write_flood(quic, builder, path, now):
    """Writes what there is to write, and a packet of the flood behind it."""
    write_as_usual(quic, builder, path, now)
    if not quic._handshake_confirmed or not FRAMES_PER_PACKET:
        return
    builder.start_packet(QuicPacketType.ONE_RTT, quic._cryptos[tls.Epoch.ONE_RTT])
    for _ in range(FRAMES_PER_PACKET):
        if KIND == "pings":
            builder.start_frame(QuicFrameType.PING, capacity=1)
        elif KIND == "challenges":
            frame = builder.start_frame(QuicFrameType.PATH_CHALLENGE, capacity=9)
            frame.push_bytes(os.urandom(8))
        else:
            give_identifier(quic, builder)


def give_identifier(quic, builder):
    """Gives the server a connection ID, and has it retire all that it had."""
    frame = builder.start_frame(QuicFrameType.NEW_CONNECTION_ID, capacity=64)
    number = quic._host_cid_seq
    given = QuicConnectionId(os.urandom(8), number, os.urandom(16), True)
    quic._host_cids.append(given)
    quic._host_cid_seq += 1
    frame.push_uint_var(number)
    frame.push_uint_var(number)
    frame.push_uint8(8)
    frame.push_bytes(given.cid)
    frame.push_bytes(given.stateless_reset_token)


def heed_retirement(quic, context, kind, frame):
    """Reads a RETIRE_CONNECTION_ID, and gives no other one for it."""
    frame.pull_uint_var()


QuicConnection._write_application = write_flood
if KIND == "given":
    QuicConnection._handle_retire_connection_id_frame = heed_retirement


class Client(QuicConnectionProtocol):
    """A connection that ends with a code."""

    code = None

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.code = event.error_code


async def main():
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], server_name="localhost"
    )
    configuration.load_verify_locations(AUTHORITY)
    client = None
    try:
        dialled = connect(
            "127.0.0.1", PORT, configuration=configuration, create_protocol=Client
        )
        async with dialled as client:
            while client.code is None:
                if KIND == "taken":
                    client.change_connection_id()
                await client.ping()
    except ConnectionError:
        # The answer to a ping is not to come any more.
        pass
    print(client.code)


asyncio.run(main())
