"""Writes `nginx-commands.txt`: the directives of `http` and `stream` in nginx's sources, with the facts
that its parser goes by.

    python3 nginx-commands.py /path/to/nginx > nginx-commands.txt

A line is NAME CONTEXTS COUNTS BLOCK MODULE: the contexts that a table of commands allows, the
counts of arguments (`flag` is one, on or off; `2+` is two or more), and `block` or `-`.
"""

import re
import sys
from pathlib import Path

CONTEXTS = {
    "NGX_MAIN_CONF": "main",
    "NGX_EVENT_CONF": "events",
    "NGX_HTTP_MAIN_CONF": "http",
    "NGX_HTTP_SRV_CONF": "server",
    "NGX_HTTP_LOC_CONF": "location",
    "NGX_HTTP_UPS_CONF": "upstream",
    "NGX_HTTP_SIF_CONF": "if-in-server",
    "NGX_HTTP_LIF_CONF": "if-in-location",
    "NGX_HTTP_LMT_CONF": "limit_except",
    "NGX_STREAM_MAIN_CONF": "stream",
    "NGX_STREAM_SRV_CONF": "server-in-stream",
    "NGX_STREAM_UPS_CONF": "upstream-in-stream",
}
COUNTS = {
    "NGX_CONF_NOARGS": ["0"],
    "NGX_CONF_FLAG": ["flag"],
    "NGX_CONF_ANY": ["0+"],
    "NGX_CONF_1MORE": ["1+"],
    "NGX_CONF_2MORE": ["2+"],
}
TABLE = re.compile(r"ngx_command_t\s+\w+\[\]\s*=\s*\{(.*?)ngx_null_command", re.S)
COMMAND = re.compile(r'\{\s*ngx_string\("([^"]+)"\),\s*([^,]*),', re.S)


def contexts_of(flags):
    if "NGX_ANY_CONF" in flags:
        return list(CONTEXTS.values())
    return [name for flag, name in CONTEXTS.items() if flag in flags]


def counts_of(flags):
    counts = [count for flag in flags for count in COUNTS.get(flag, [])]
    taken = [flag.removeprefix("NGX_CONF_TAKE") for flag in flags if "_TAKE" in flag]
    return sorted({*counts, *(digit for digits in taken for digit in digits)})


def commands_of(source):
    for table in TABLE.findall(source.read_text(errors="replace")):
        for name, words in COMMAND.findall(re.sub(r"/\*.*?\*/", "", table, flags=re.S)):
            flags = set(re.split(r"[|\s]+", words))
            block = "block" if "NGX_CONF_BLOCK" in flags else "-"
            contexts, counts = ",".join(contexts_of(flags)), ",".join(counts_of(flags))
            yield f"{name} {contexts} {counts} {block} {source.stem}"


def main():
    root = Path(sys.argv[1], "src")
    header = (root / "core/nginx.h").read_text()
    version = re.search(r'NGINX_VERSION\s+"([^"]+)"', header).group(1)
    print(f"# nginx {version}; written by nginx-commands.py")
    for folder in ("core", "event", "http", "stream"):
        for source in sorted((root / folder).rglob("*.c")):
            for line in commands_of(source):
                print(line)


main()
