import msgspec
import pytest

from reach_core.messages import read_entries
from reach_core.peer import Entry, Rank
from reach_sidecar.membership.cache import MAX_AGE_MS, CachedTable, Instance, load_table, save_table

CONTROLS = ("http://127.0.0.1:7080",)
ENTRY = Entry(agent_id="a", gen=1, ver=2, rank=Rank.UP, address="127.0.0.1:7071")


def cached(**changes):
    fields = {"controls": CONTROLS, "epoch": "e", "seq": 4, "saved_ms": 1_000_000,
              "entries": [msgspec.Raw(ENTRY.encoded)]}
    return CachedTable(**{**fields, **changes})


def test_what_is_saved_is_loaded(tmp_path):
    save_table(tmp_path / "table.json", cached())
    table = load_table(tmp_path / "table.json", CONTROLS, 1_000_500)
    assert (table.epoch, table.seq) == ("e", 4)
    assert read_entries(table.entries) == ([ENTRY], 0)
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]


@pytest.mark.parametrize(
    ("controls", "now_ms"),
    [
        (("http://127.0.0.1:7080",), 1_000_000 + MAX_AGE_MS + 1),
        (("http://127.0.0.1:7080",), 999_000),
        (("http://10.0.0.1:7080",), 1_000_500),
        ((), 1_000_500),
    ],
)
def test_what_is_old_or_from_elsewhere_is_not_used(tmp_path, controls, now_ms):
    save_table(tmp_path / "table.json", cached())
    assert load_table(tmp_path / "table.json", controls, now_ms) is None


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"epoch": 1}', b"\xff\xfe"])
def test_a_broken_file_counts_as_none(tmp_path, content):
    if content is not None:
        (tmp_path / "table.json").write_bytes(content)
    assert load_table(tmp_path / "table.json", CONTROLS, 0) is None


def test_a_broken_entry_does_not_cost_the_others():
    assert read_entries(cached(entries=[msgspec.Raw(b'["a"]'), msgspec.Raw(ENTRY.encoded)]).entries) == ([ENTRY], 1)


def test_a_restarted_sidecar_has_the_same_name_and_a_second_one_its_own(tmp_path):
    first = Instance(tmp_path / "state")
    second = Instance(tmp_path / "state")
    assert second.name != first.name
    second.close()
    first.close()
    again = Instance(tmp_path / "state")
    assert again.name == first.name
    again.close()


def test_without_a_state_directory_a_name_is_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert len(Instance(tmp_path / "file").name) == 32


def test_a_damaged_name_is_replaced(tmp_path):
    (tmp_path / "instance").write_text("not a name")
    one = Instance(tmp_path)
    one.close()
    assert (tmp_path / "instance").read_text() == one.name


def test_aliases_are_kept(tmp_path):
    save_table(tmp_path / "table.json", cached(aliases={"email.send": ["notify.email"]}))
    table = load_table(tmp_path / "table.json", CONTROLS, 1_000_500)
    assert table.aliases == {"email.send": ["notify.email"]}


def test_a_file_of_an_older_version_has_none(tmp_path):
    save_table(tmp_path / "table.json", cached())
    path = tmp_path / "table.json"
    path.write_bytes(path.read_bytes().replace(b',"aliases":{}', b""))
    assert b"aliases" not in path.read_bytes()
    assert load_table(path, CONTROLS, 1_000_500).aliases == {}
