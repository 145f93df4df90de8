"""A client of HTTPS in Python: `client.py URL CA VERSION`, where VERSION is h1 (ssl and
http.client) or h2 (httpx). It does what tests/tests/real_clients says that each client does, and
prints a line for each answer."""

import asyncio
import hashlib
import http.client
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

BASE, AUTHORITY, VERSION = sys.argv[1:]
UPLOAD = bytes(index * 7 % 251 for index in range(300_000))
PARALLEL = 20
# Seconds, on a machine that does much else; httpx gives up after five.
PATIENCE = 180
TASKS = [
    ("small", "GET", "/small", None),
    ("large", "GET", "/large", None),
    ("chunks", "GET", "/chunks", None),
    ("upload", "POST", "/echo", UPLOAD),
    ("head", "HEAD", "/large", None),
    ("missing", "GET", "/missing", None),
]


def tell(task, status, spoken, body):
    # One write, since threads print at the same time.
    sys.stdout.write(f"{task} {status} {spoken} {hashlib.sha256(body).hexdigest()}\n")


def over_http1():
    context = ssl.create_default_context(cafile=AUTHORITY)
    place = urlsplit(BASE)

    def connect():
        return http.client.HTTPSConnection(place.hostname, place.port, context=context)

    def ask(connection, task, method, path, body):
        connection.request(method, path, body)
        answer = connection.getresponse()
        tell(task, answer.status, f"h{answer.version // 10}", answer.read())

    one = connect()
    for task in TASKS:
        ask(one, *task)
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda _: ask(connect(), "many", "GET", "/large", None), range(PARALLEL)))
    # A session is given to a socket by hand.
    session = one.sock.session
    name = place.hostname
    with socket.create_connection((name, place.port)) as raw:
        with context.wrap_socket(raw, server_hostname=name, session=session) as secure:
            secure.sendall(b"GET /small HTTP/1.0\r\nHost: localhost\r\n\r\n")
            head = b"".join(iter(lambda: secure.recv(4096), b""))
            assert secure.session_reused
    reused = head.split(b"X-Reused: ")[1].split(b"\r\n")[0].decode()
    print("again", reused)


async def over_http2():
    import httpx

    context = ssl.create_default_context(cafile=AUTHORITY)
    async with httpx.AsyncClient(
        http2=True, verify=context, base_url=BASE, timeout=PATIENCE
    ) as client:

        async def ask(task, method, path, body):
            answer = await client.request(method, path, content=body)
            spoken = {"HTTP/2": "h2", "HTTP/1.1": "h1"}[answer.http_version]
            tell(task, answer.status_code, spoken, answer.content)

        for task in TASKS:
            await ask(*task)
        await asyncio.gather(*(ask("many", "GET", "/large", None) for _ in range(PARALLEL)))


if VERSION == "h2":
    asyncio.run(over_http2())
else:
    over_http1()
