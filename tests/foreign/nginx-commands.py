"""Writes `nginx-commands.txt`: the directives of `http` and `stream` in nginx's sources, with the facts
that its parser goes by.

    python3 nginx-commands.py /path/to/nginx > nginx-commands.txt

A line is NAME CONTEXTS COUNTS BLOCK MODULE REPEATS VALUE: the contexts that a table of commands
allows, the counts of arguments (`flag` is one, on or off; `2+` is two or more), `block` or `-`,
`once` if its setter says that a second line is a duplicate or else `again`, and the grammar of its
value where a setter of many directives reads it (`own` if not).
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
COMMAND = re.compile(
    r'\{\s*ngx_string\("([^"]+)"\),\s*([^,]*),\s*(\w+),[^}]*?,\s*(?:\(void \*\)\s*)?&?(\w+)(?:\[0\])?\s*\}', re.S
)
FUNCTION = re.compile(r"^(\w+)\(ngx_conf_t \*cf, [^{};]*\)\n\{(.*?)^\}", re.S | re.M)
WORDS = re.compile(r"(\w+)\[\]\s*=\s*\{\s*\{\s*ngx_string\(\"([^\"]+)\"\)", re.S)
# Setters that many directives have, and the grammar of their values.
VALUES = {
    "ngx_conf_set_flag_slot": "flag",
    "ngx_conf_set_str_slot": "text",
    "ngx_conf_set_str_array_slot": "text",
    "ngx_conf_set_keyval_slot": "pair",
    "ngx_conf_set_num_slot": "number",
    "ngx_conf_set_size_slot": "size",
    "ngx_conf_set_off_slot": "size",
    "ngx_conf_set_msec_slot": "time",
    "ngx_conf_set_sec_slot": "time",
    "ngx_conf_set_bufs_slot": "buffers",
    "ngx_conf_set_enum_slot": "word",
    "ngx_conf_set_bitmask_slot": "word",
    "ngx_conf_set_path_slot": "path",
    "ngx_conf_set_access_slot": "access",
    "ngx_http_set_complex_value_slot": "text",
    "ngx_http_set_complex_value_zero_slot": "text",
    "ngx_http_set_complex_value_size_slot": "size",
    "ngx_http_set_predicate_slot": "text",
    "ngx_stream_set_complex_value_slot": "text",
    "ngx_stream_set_complex_value_zero_slot": "text",
    "ngx_stream_set_complex_value_size_slot": "size",
    "ngx_http_types_slot": "type",
    "ngx_http_upstream_bind_set_slot": "address",
    "ngx_http_upstream_param_set_slot": "pair",
}


def contexts_of(flags):
    if "NGX_ANY_CONF" in flags:
        return list(CONTEXTS.values())
    return [name for flag, name in CONTEXTS.items() if flag in flags]


def counts_of(flags):
    counts = [count for flag in flags for count in COUNTS.get(flag, [])]
    taken = [flag.removeprefix("NGX_CONF_TAKE") for flag in flags if "_TAKE" in flag]
    return sorted({*counts, *(digit for digits in taken for digit in digits)})


def repeats_of(setter, functions, seen=()):
    """`once` if the setter, or one that it calls, says "is duplicate"."""
    body = functions.get(setter, "")
    if "is duplicate" in body:
        return "once"
    called = re.findall(r"(\w+)\(cf, cmd, conf\)", body)
    calls = [name for name in called if name not in seen]
    if any(repeats_of(name, functions, (*seen, setter)) == "once" for name in calls):
        return "once"
    return "again"


def commands_of(source, functions):
    text = re.sub(r"/\*.*?\*/", "", source.read_text(errors="replace"), flags=re.S)
    functions = {**functions, **dict(FUNCTION.findall(text))}
    words_of = dict(WORDS.findall(text))
    for table in TABLE.findall(text):
        for name, words, setter, post in COMMAND.findall(table):
            flags = set(re.split(r"[|\s]+", words))
            block = "block" if "NGX_CONF_BLOCK" in flags else "-"
            contexts, counts = ",".join(contexts_of(flags)), ",".join(counts_of(flags))
            value = VALUES.get(setter, "own")
            if value == "word":
                value = f"word:{words_of.get(post, 'on')}"
            repeats = repeats_of(setter, functions)
            yield f"{name} {contexts} {counts} {block} {source.stem} {repeats} {value}"


def main():
    root = Path(sys.argv[1], "src")
    header = (root / "core/nginx.h").read_text()
    version = re.search(r'NGINX_VERSION\s+"([^"]+)"', header).group(1)
    print(f"# nginx {version}; written by nginx-commands.py")
    sources = [source for source in sorted(root.rglob("*.c"))]
    functions = {}
    for source in sources:
        functions.update(FUNCTION.findall(source.read_text(errors="replace")))
    for folder in ("core", "event", "http", "stream"):
        for source in sorted((root / folder).rglob("*.c")):
            for line in commands_of(source, functions):
                print(line)


main()
