"""Both ends of gRPC in Python: `rpc.py server [CERT KEY]` prints its port and serves until its
input ends; `rpc.py client ADDRESS [CA]` does what tests/tests/grpc says that each client does, and
prints a line for each answer. Messages are google.protobuf.StringValue, made by hand."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event

import grpc

SERVICE = "millpond.Echo"
# Time that a call may take on a busy machine; that of the call that is never answered.
PATIENCE, DEADLINE = 60, 0.3
ROUNDS, LARGE_LEN = 50, 1_000_000


def encode(text):
    """Field 1, a string: nothing if it is empty."""
    data = text.encode()
    if not data:
        return b""
    length, prefix = len(data), bytearray(b"\x0a")
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    return bytes(prefix) + bytes([length]) + data


def decode(data):
    if not data:
        return ""
    assert data[0] == 0x0A
    place = next(place for place in count(1) if data[place] < 128)
    return data[place + 1 :].decode()


class Server:
    def __init__(self, files):
        self.left = 0
        kinds = {
            "unary_unary": ["Unary", "Fail", "Hang", "Cancelled"],
            "unary_stream": ["Down"],
            "stream_unary": ["Up"],
            "stream_stream": ["Both"],
        }
        handlers = {
            name: getattr(grpc, kind + "_rpc_method_handler")(
                getattr(self, name.lower()), decode, encode
            )
            for kind, names in kinds.items()
            for name in names
        }
        self.server = grpc.server(ThreadPoolExecutor(16))
        handler = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self.server.add_generic_rpc_handlers((handler,))
        if files:
            chain, key = (Path(file).read_bytes() for file in files)
            secure = grpc.ssl_server_credentials([(key, chain)])
            port = self.server.add_secure_port("127.0.0.1:0", secure)
        else:
            port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        print(port, flush=True)

    def unary(self, asked, context):
        told = ("x-text", "x-data-bin")
        context.send_initial_metadata([it for it in context.invocation_metadata() if it[0] in told])
        context.set_trailing_metadata([("x-tail", "end")])
        return asked

    def fail(self, asked, context):
        code = next(code for code in grpc.StatusCode if code.value[0] == int(asked))
        context.abort(code, "über " + asked)

    def hang(self, _, context):
        left = Event()
        context.add_callback(left.set)
        left.wait()
        self.left += 1
        return ""

    def cancelled(self, _, _context):
        return str(self.left)

    def down(self, asked, _):
        yield from asked.split(" ")

    def up(self, asked, _):
        return " ".join(asked)

    def both(self, asked, _):
        yield from asked


class Caller:
    def __init__(self, address, authority=None):
        if authority:
            secure = grpc.ssl_channel_credentials(Path(authority).read_bytes())
            self.channel = grpc.secure_channel(address, secure)
        else:
            self.channel = grpc.insecure_channel(address)

    def method(self, kind, path):
        return getattr(self.channel, kind)(path, encode, decode)

    def call(self, path, asked, patience=PATIENCE):
        """The answer and the call, or the error."""
        metadata = [("x-text", "some text"), ("x-data-bin", b"\x00\xff")]
        try:
            method = self.method("unary_unary", path)
            return method.with_call(asked, timeout=patience, metadata=metadata)
        except grpc.RpcError as error:
            return None, error

    def run(self):
        self.unary()
        self.streams()
        for code in range(1, 17):
            _, told = self.call(f"/{SERVICE}/Fail", str(code))
            print("fail", told.code().value[0], told.details())
        for name in (
            f"{SERVICE}/Nothing",
            "dead.Service/Call",
            "denied.Service/Call",
            "none.Service/Call",
            "limited.Service/Call",
        ):
            _, told = self.call(f"/{name}", "x")
            print(name, told.code().value[0])
        before = self.cancelled()
        _, told = self.call(f"/{SERVICE}/Hang", "x", DEADLINE)
        print("deadline", told.code().value[0])
        while self.cancelled() == before:
            time.sleep(0.001)
        print("the server knows")

    def cancelled(self):
        answer, told = self.call(f"/{SERVICE}/Cancelled", "")
        assert answer is not None, told
        return answer

    def unary(self):
        answer, told = self.call(f"/{SERVICE}/Unary", "hello")
        assert answer is not None, told
        head = dict(told.initial_metadata())
        tail = dict(told.trailing_metadata())
        text, data = json.dumps(head["x-text"]), head["x-data-bin"]
        assert data == b"\x00\xff", data
        print("unary", answer, text, '"\\x00\\xff"', json.dumps(tail["x-tail"]))
        large = "x" * LARGE_LEN
        print("large", str(self.call(f"/{SERVICE}/Unary", large)[0] == large).lower())

    def streams(self):
        parts = [str(round) for round in range(ROUNDS)]
        everything = " ".join(parts)
        down = self.method("unary_stream", f"/{SERVICE}/Down")(everything, timeout=PATIENCE)
        print("down", str(list(down) == parts).lower())
        up = self.method("stream_unary", f"/{SERVICE}/Up")(iter(parts), timeout=PATIENCE)
        print("up", str(up == everything).lower())
        # Each message is answered before the next is sent.
        answered = Event()

        def asked():
            for part in parts:
                yield part
                answered.wait()
                answered.clear()

        came = []
        for answer in self.method("stream_stream", f"/{SERVICE}/Both")(asked(), timeout=PATIENCE):
            came.append(answer)
            answered.set()
        print("both", str(came == parts).lower())


if sys.argv[1] == "server":
    served = Server(sys.argv[2:])
    sys.stdin.read()
else:
    Caller(*sys.argv[2:]).run()
