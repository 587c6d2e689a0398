"""Loading `sidecar.yaml`: what it may say, and what each mistake is answered with."""

import os
import stat
from pathlib import Path

import pytest
from harness.settings import complaint_at_mark
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.config import (
    ConfigError,
    SidecarConfig,
    complete,
    host_id,
    load_sidecar,
    parse_sidecar,
    read_sidecar,
)

ENV = {"PORT": "7999", "WORD": "seven", "EMPTY": "", "LINES": "a\nid: b", "SECRET_URL": "ftp://me:hush@host"}

# ▸ stands before the character that the complaint must point at.
BAD = {
    "unknown key": ("agent: {▸capabilites: []}", "unknown key `capabilites` in `agent`, did you mean `capabilities`?"),
    "unknown key at top": ("▸contol: []", "did you mean `control`?"),
    "unknown key with dashes": ("▸default-timeout: 3s", "did you mean `default_timeout`?"),
    "unknown key in capital letters": ("log:\n  ▸Level: info", "did you mean `level`?"),
    "unknown key near nothing": ("drain:\n  ▸zzz: 1", "unknown key `zzz` in `drain`; known are wait, grace"),
    "unknown key in an item": ("agent:\n  address: http://h:1\n  capabilities:\n  - name: a\n    ▸alias: [b]", "`aliases`"),
    "empty file": ("▸", "the file is empty"),
    "comments only": ("▸# nothing\n\n", "the file is empty"),
    "list at top": ("▸- agent", "expected `key: value` lines, found a list"),
    "text at top": ("▸agent", "expected `key: value` lines, found `agent`"),
    "tab": ("agent:\n▸\tid: x", "a tab is used for indentation"),
    "duplicate key": ("egress: allow\n▸egress: allow", "`egress` is given twice, first on line 1"),
    "duplicate key below": ("log: {level: info, ▸level: debug}", "`log.level` is given twice"),
    "list not closed": ("control: [a, b▸", "a `,` or the closing `]` is missing"),
    "section not closed": ("log: {level: info▸", "a `,` or the closing `}` is missing"),
    "quote not closed": ('agent:\n  id: "x\n▸', "the closing quote is missing (it began on line 2)"),
    "value missing": ("control: [▸", "the file ends where a value is missing"),
    "indentation": ("agent:\n id: x\n   version▸: 1", "a `:` stands where no key can be"),
    "dedent": ("agent:\n    id: x\n  ▸version: 1", "the indentation does not match"),
    "no colon": ("egress: allow\n▸insecure\n", "the `:` (with a space after it) is missing"),
    "two documents": ("insecure: true\n▸---\ninsecure: false", "a second document"),
    "address without quotes": ("listen: {mesh: [▸::1]:7071}", "an address with brackets needs quotes"),
    "reserved character": ("state_dir: ▸@home", "a value cannot start with `@`"),
    "undefined alias": ("log: ▸*nothing", "the alias `*nothing` refers to no anchor"),
    "merge key": ("log:\n  ▸<<: {level: info}", "merge keys (`<<`) are not supported"),
    "python tag": ("state_dir: ▸!!python/name:os.system x", "tags are not used here"),
    "own tag": ("insecure: ▸!yes true", "tags are not used here"),
    "list as key": ("? ▸[a]\n: b", "a key is a plain word, found a list"),
    "control character": ("state_dir: a▸\x07", "U+0007 cannot stand in a YAML file"),
    "escape beyond Unicode": ('state_dir: "\\U▸FFFFFFFF"', "not valid YAML here"),
    "too deep": ("a: " + "[" * 31 + "▸" + "[" * 60, "nested more than 32 deep"),
    "wrong type: text for a number": ("agent: {queue: ▸many}", "`agent.queue`: expected a whole number, found `many`"),
    "wrong type: fraction": ("agent: {queue: ▸1.5}", "expected a whole number, found `1.5`"),
    "wrong type: quoted number": ('agent: {queue: ▸"4"}', "found the text `4` (take the quotes away)"),
    "wrong type: word for a flag": ("insecure: ▸yes", "expected true or false, found `yes` (write true)"),
    "wrong type: list for text": ("state_dir: ▸[a]", "expected a path of a file or directory, found a list"),
    "wrong type: section for text": ("state_dir: ▸{a: 1}", "found `key: value` lines"),
    "wrong type: text for a list": ("control: ▸http://c:7080", "expected a list, found `http://c:7080` (write [http://c:7080])"),
    "wrong type: text for a section": ("listen: ▸127.0.0.1:7070", "`listen`: expected `key: value` lines"),
    "wrong type: list for a section": ("agent: ▸[]", "`agent`: expected `key: value` lines, found a list"),
    "no value": ("default_timeout:▸ ", "expected a duration such as 1500ms, 30s or 10m, found nothing"),
    "nothing below an optional section": ("agent:▸\ncontrol: []", "`{}` means every default"),
    "duration without unit": ("default_timeout: ▸30", "found `30` (write 30s or 30ms)"),
    "duration in words": ("default_timeout: ▸ten minutes", "expected a duration"),
    "negative duration": ("default_timeout: ▸-1s", "expected a duration"),
    "duration of zero": ("default_timeout: ▸0s", "expected at least 1ms, found `0s`"),
    "endless duration": ("default_timeout: ▸999999999999d", "that is more than a year"),
    "size in powers of ten": ("log: {max_size: ▸1MB}", "expected a size such as 64KiB"),
    "size too small": ("limits: {head: ▸1B}", "expected at least 1KiB, found `1B`"),
    "number too small": ("agent: {max_concurrency: ▸0}", "expected at least 1, found `0`"),
    "weight of zero": ("agent: {weight: ▸0}", "expected more than 0, found `0`"),
    "weight not finite": ("agent: {weight: ▸.inf}", "expected a number, found `.inf`"),
    "not one of the words": ("log: {level: ▸warm}", "expected debug, info, warn or error, found `warm` (did you mean `warn`?)"),
    "mode of the future": (
        "agent:\n  address: http://h:1\n  capabilities: [{name: a, mode: ▸async}]",
        "`agent.capabilities[0].mode`: expected sync, found `async`",
    ),
    "address without port": ("listen: {admin: ▸localhost}", "the port is missing"),
    "address: only a port": ("listen: {admin: ▸7072}", "write host and port, such as 127.0.0.1:7072"),
    "address without host": ('listen: {admin: ▸":7072"}', "the host is missing: 127.0.0.1:7072 is this machine only"),
    "address: port too large": ("listen: {admin: ▸localhost:70720}", "the port is a number from 0 to 65535"),
    "address: IPv6 without brackets": ('listen: {admin: ▸"::1:7072"}', "an IPv6 address needs brackets: [::1]:7072"),
    "address: not an IP address": ("listen: {admin: ▸127.0.0.256:7072}", "that is not an IP address"),
    "advertise: every address": ("advertise: ▸0.0.0.0:7071", "peers cannot call that address"),
    "advertise: port 0": ("advertise: ▸10.0.0.1:0", "port 0 cannot be called"),
    "URL: no scheme": ("control: [▸localhost:7080]", "it starts with http:// or https://"),
    "URL: with a path": ("control: [▸http://c:7080/v1]", "no path"),
    "URL: bad port": ("control: [▸http://c:port]", "the host or the port is wrong"),
    "agent's address is not plain HTTP": ("agent: {address: ▸https://h:1}", "it starts with http://"),
    "agent id": ("agent: {id: ▸a b}", "expected an id of 1 to 63 letters"),
    "agent id too long": (f"agent: {{id: ▸{'a' * 64}}}", "it has at most 63 characters"),
    "path": ("agent: {health: {path: ▸healthz}}", "expected a path that starts with `/`"),
    "key place": (
        "agent:\n  address: http://h:1\n  capabilities: [{name: a, key: ▸order_id}]",
        "expected `header:Name` or `json:/field`",
    ),
    "origin": ("allowed_origins: [▸https://a.example/x]", "no path"),
    "any origin": ('allowed_origins: [▸"*"]', "expected an origin"),
    "host with port": ("allowed_hosts: [▸a.example:80]", "a host without port is meant"),
    "attribute's name": (
        "agent:\n  address: http://h:1\n  capabilities: [{name: a, attributes: {▸1x: y}}]",
        "expected an attribute name",
    ),
    "attribute's value": (
        "agent:\n  address: http://h:1\n  capabilities: [{name: a, attributes: {x: ▸{y: z}}}]",
        "expected a list, found `key: value` lines",
    ),
    "missing key": ("agent:\n  address: http://h:1\n  capabilities:\n  - ▸path: /x", "`agent.capabilities[0].name` is missing"),
    "missing key in a section": ("join: ▸{}", "`join.token_file` is missing: write `token_file: …` here"),
    "unset variable": ("state_dir: /var/▸${NOWHERE}/x", "the environment variable `NOWHERE` is not set"),
    "unset variable in quotes": ('control: ["http://▸${NOWHERE}:80"]', "`control[0]`: the environment variable `NOWHERE`"),
    "variable of a wrong kind": ('agent: {queue: ▸"${WORD}"}', "`agent.queue`: expected a whole number, found `seven`"),
    "variable that would add a line": ('agent: {id: ▸"${LINES}"}', "expected an id"),
    "variable without quotes in a list": ("control: [$▸{SECRET_URL}]", "inside [ ] or { } a value with ${…} needs quotes"),
    "variable never closed": ("state_dir: a▸${PORT", "`${` is never closed"),
    "variable with a strange name": ("state_dir: ▸${A-b}", "`${A-b}` is not a variable"),
    "variable in a default": ("state_dir: ▸${A:-${B}}", "the default of `A` holds another variable"),
    "variable for a section": ("agent: ▸${WORD}", "a variable stands for one value"),
    "password in a URL is not repeated": ('control: [▸"${SECRET_URL}"]', "found `ftp://***@host`"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_each_mistake_is_named_with_its_place(case: str) -> None:
    marked, fragment = BAD[case]
    complaint = complaint_at_mark(lambda text: parse_sidecar(text, "sidecar.yaml", ENV), marked)
    assert fragment in complaint.message
    assert str(complaint).startswith(f"sidecar.yaml:{complaint.line}:{complaint.column}: ")
    assert "\n" not in str(complaint)


def test_every_mistake_is_reported_at_once_and_in_order() -> None:
    text = """\
listen:
  outbound: 127.0.0.1:7071
  admin: nowhere
agnt: {}
default_timeout: 5
agent:
  capabilities:
    - {name: a, timeout: 20m}
    - {nme: b, dedup: sometimes}
"""
    with pytest.raises(ConfigError) as caught:
        parse_sidecar(text, "f", {})
    assert [(c.line, c.column) for c in caught.value.complaints] == [
        (2, 13), (3, 10), (4, 1), (5, 18), (7, 3), (8, 26), (9, 8), (9, 23),
    ]  # fmt: skip


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_complaint(text: str) -> None:
    try:
        assert isinstance(parse_sidecar(text, "f", {}), SidecarConfig)
    except ConfigError as error:
        assert error.complaints


YAML_PIECES = st.sampled_from(
    ["agent", "control", "listen", "log", "id", "capabilities", "name", "level", ": ", ":", "\n", "\n  ", "\n    ", "- "]
    + ["[", "]", "{", "}", ",", '"', "'", "&a ", "*a", "!t ", "|", ">", "${X}", "${", "}", "#", "?", "%", "@", "\t", "<<"]
    + ["1", "30s", "127.0.0.1:7070", "http://h:1", "\\", "~", "null", "---", "...", "\ufeff", "\x85", "é", "🂡"]
)


@given(st.lists(YAML_PIECES, max_size=40).map("".join))
def test_anything_that_looks_like_yaml_is_a_configuration_or_a_complaint(text: str) -> None:
    lines = text.count("\n") + text.count("\x85") + 2
    try:
        parse_sidecar(text, "f", {"X": "x"})
    except ConfigError as error:
        assert all(1 <= complaint.line <= lines and complaint.column >= 1 for complaint in error.complaints)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_configuration_or_a_complaint(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(data)
    try:
        read_sidecar(file, {})
    except ConfigError as error:
        assert error.complaints


def test_text_stays_the_text_that_was_written() -> None:
    config = parse_sidecar(
        "agent:\n  id: 007\n  version: 1.40\n  address: http://h:1\n  capabilities:\n"
        "  - {name: no, dedup: off, attributes: {model: 1.10, gpu: yes, langs: [no, en]}}",
        "f",
        {},
    )
    assert config.agent is not None
    assert (config.agent.id, config.agent.version) == ("007", "1.40")
    capability = config.agent.capabilities[0]
    assert (capability.name, capability.dedup) == ("no", "off")
    assert capability.attributes == {"model": ["1.10"], "gpu": ["yes"], "langs": ["no", "en"]}


def test_variables_are_expanded_inside_values() -> None:
    text = (
        'listen: {outbound: "127.0.0.1:${PORT}"}\nagent: {queue: "${N:-5}", id: "${ID:-x}-1"}\n'
        "state_dir: /v/$${PORT}/$x\nadvertise: ${EMPTY}\ndefault_timeout: ${EMPTY}"
    )
    config = parse_sidecar(text, "f", ENV)
    assert config.listen.outbound == "127.0.0.1:7999"
    assert config.agent is not None
    assert (config.agent.queue, config.agent.id) == (5, "x-1")
    assert config.state_dir == "/v/${PORT}/$x"
    assert config.advertise is None
    assert config.default_timeout == 600.0


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_bytes(b"\xef\xbb\xbfinsecure: true\n")
    assert load_sidecar(file, {}).insecure


@pytest.mark.parametrize(
    ("data", "place", "fragment"),
    [
        ("insecure: true".encode("utf-16"), "1:1: ", "UTF-16"),
        (b"a: 1\nb: \xe9\xff", "2:4: ", "byte 0xe9 is not UTF-8"),
        (b"#" * ((1 << 20) + 1), "", "at most 1048576 are read"),
    ],
)
def test_bytes_that_are_no_text(tmp_path: Path, data: bytes, place: str, fragment: str) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_sidecar(file, {})
    assert str(caught.value).startswith(f"{file}:{place or ' '}")
    assert fragment in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, fragment in (
        (tmp_path / "none.yaml", "there is no such file"),
        (tmp_path, "that is a directory"),
        (tmp_path / ("x" * 300), "cannot be read"),
        ("a\0b", "not the name of a file"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_sidecar(path, {})
        assert fragment in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text("insecure: true")
    file.chmod(stat.S_IWUSR)
    with pytest.raises(ConfigError, match="may not read"):
        load_sidecar(file, {})


def test_alias_bombs_are_bounded() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    text = "agent:\n  address: http://h:1\n  capabilities: *a11\n"
    with pytest.raises(ConfigError):
        parse_sidecar("\n".join(levels) + "\n" + text, "f", {})
    own = "allowed_hosts: &a [" + ", ".join(["b"] * 9) + "]\nallowed_origins: *a"
    with pytest.raises(ConfigError, match="origin"):
        parse_sidecar(own, "f", {})
    with pytest.raises(ConfigError):
        parse_sidecar("allowed_hosts: &a [*a]", "f", {})


def test_what_the_machine_decides_is_filled_in() -> None:
    env = {"HOME": "/srv/me"}
    gateway = complete(SidecarConfig(), env, root=False)
    assert gateway.id == f"gateway-{host_id()}"[:63]
    assert gateway.provisional
    assert gateway.state_dir == f"/srv/me/.local/state/reach/{gateway.id}"
    own = complete(parse_sidecar("agent: {}", "f", {}), env, root=True)
    assert own.agent is not None
    assert own.agent.id == own.id == host_id()
    assert own.provisional
    assert own.state_dir == "/var/lib/reach"
    named = complete(parse_sidecar("agent: {id: x}\nstate_dir: /s", "f", {}), env)
    assert (named.id, named.provisional, named.state_dir) == ("x", False, "/s")
    assert complete(own, env) == own
