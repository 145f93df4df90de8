"""A client of HTTPS by libcurl with GnuTLS, called from Python: `gnutls.py URL CA VERSION`, where
VERSION is h1 or h2. It does what tests/tests/real_clients says that each client does, and prints a
line for each answer. The program `curl` of Debian is built with OpenSSL. It resumed
no session of TLS 1.3 when this was written, so it tells of none: gnutls-cli does."""

import ctypes
import hashlib
import sys

BASE, AUTHORITY, VERSION = sys.argv[1:]
UPLOAD = bytes(index * 7 % 251 for index in range(300_000))
PARALLEL = 20
# curl/curl.h
URL, CAINFO, CUSTOMREQUEST = 10002, 10065, 10036
POSTFIELDS, POSTFIELDSIZE, NOBODY = 10015, 60, 44
WRITEFUNCTION, HTTP_VERSION = 20011, 84
RESPONSE_CODE, INFO_HTTP_VERSION = 0x200002, 0x20002E
VERSIONS = {"h1": 2, "h2": 4}
TOLD = {2: "h1", 3: "h2"}

curl = ctypes.CDLL("libcurl-gnutls.so.4")
curl.curl_version.restype = ctypes.c_char_p
curl.curl_easy_init.restype = curl.curl_multi_init.restype = ctypes.c_void_p
assert b"GnuTLS" in curl.curl_version()
Writer = ctypes.CFUNCTYPE(
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p
)


class Easy:
    """A handle, whose connections are kept unless it is told otherwise."""

    def __init__(self):
        self.handle = ctypes.c_void_p(curl.curl_easy_init())
        self.body = bytearray()
        self.writer = self.into(self.body)
        self.set(CAINFO, AUTHORITY.encode())
        self.set(HTTP_VERSION, ctypes.c_long(VERSIONS[VERSION]))
        self.set(WRITEFUNCTION, self.writer)

    def into(self, place):
        def write(data, size, count, _):
            place.extend(ctypes.string_at(data, size * count))
            return size * count

        return Writer(write)

    def set(self, option, value):
        assert curl.curl_easy_setopt(self.handle, option, value) == 0, option

    def prepare(self, method, path, body=None):
        self.body.clear()
        self.set(URL, (BASE + path).encode())
        self.set(CUSTOMREQUEST, method.encode())
        self.set(NOBODY, ctypes.c_long(method == "HEAD"))
        if body is not None:
            self.set(POSTFIELDSIZE, ctypes.c_long(len(body)))
            self.set(POSTFIELDS, body)

    def info(self, what):
        value = ctypes.c_long()
        assert curl.curl_easy_getinfo(self.handle, what, ctypes.byref(value)) == 0
        return value.value

    def tell(self, task):
        spoken = TOLD[self.info(INFO_HTTP_VERSION)]
        sum = hashlib.sha256(self.body).hexdigest()
        print(task, self.info(RESPONSE_CODE), spoken, sum)

    def perform(self):
        code = curl.curl_easy_perform(self.handle)
        assert code == 0, f"curl says {code}"


def ask_many():
    multi = ctypes.c_void_p(curl.curl_multi_init())
    many = [Easy() for _ in range(PARALLEL)]
    for easy in many:
        easy.prepare("GET", "/large")
        assert curl.curl_multi_add_handle(multi, easy.handle) == 0
    running = ctypes.c_int(1)
    while running.value:
        assert curl.curl_multi_perform(multi, ctypes.byref(running)) == 0
        assert curl.curl_multi_wait(multi, None, 0, 1000, None) == 0
    for easy in many:
        easy.tell("many")


one = Easy()
for task, method, path in [
    ("small", "GET", "/small"),
    ("large", "GET", "/large"),
    ("chunks", "GET", "/chunks"),
    ("head", "HEAD", "/large"),
    ("missing", "GET", "/missing"),
]:
    one.prepare(method, path)
    one.perform()
    one.tell(task)
ask_many()
posting = Easy()
posting.prepare("POST", "/echo", UPLOAD)
posting.perform()
posting.tell("upload")
