"""What control says of the whole mesh besides the table: whose signatures count, the keys of datagrams, other names of
capabilities.

The public keys are pinned as each control node told them: those of all nodes of the configuration count together, and
a node's word replaces its own earlier one only. Keys that no node names any more still count for a while, because
entries that others hold are signed with them; then what is signed with them is forgotten, for nobody would ever renew
or remove it.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from reach_core.gossip.seal import MeshKeys
from reach_core.keyring import Keyring
from reach_core.messages import MeshInfo


class MeshFacts:
    """`keyring`: whose signatures count. `keys`: what datagrams are sealed with, None until control told.

    `on_aliases` is told when the mesh-wide aliases change.
    """

    def __init__(self, on_aliases: Callable[[Mapping[str, Sequence[str]]], None]) -> None:
        self.keyring = Keyring()
        self.keys: MeshKeys | None = None
        self.aliases: dict[str, list[str]] = {}
        self.retired_at: float | None = None
        self._on_aliases = on_aliases
        self._said: dict[str, MeshInfo] = {}
        self._silent: set[str] = set()
        self._retired: frozenset[bytes] = frozenset()

    @property
    def is_known(self) -> bool:
        return any(said.version for said in self._said.values())

    def signs(self, url: str) -> bool:
        """Are the entries of the control node `url` signed? One that is too old to say anything signs none."""
        return self.is_known and url not in self._silent

    def version_of(self, url: str) -> int:
        """Of what the control node `url` last told, 0 if it told nothing."""
        said = self._said.get(url)
        return said.version if said is not None else 0

    def take(self, url: str, info: MeshInfo, now_s: float) -> None:
        """What the control node `url` says now; `version` 0: it is too old to say anything."""
        if not info.version:
            self._silent.add(url)
            return
        self._silent.discard(url)
        self._said[url] = info
        named = frozenset(key for said in self._said.values() for key in said.keys)
        dropped = self.keyring.publics - named - self._retired
        self._retired = (self._retired | dropped) - named
        if dropped:
            self.retired_at = now_s
        self.keyring.replace(named | self._retired)
        if info.mesh_keys and (keys := MeshKeys(info.mesh_keys, info.mesh_key)).can_seal:
            self.keys = keys
        self.take_aliases(info.aliases)

    def take_aliases(self, aliases: dict[str, list[str]]) -> None:
        """The mesh-wide ones, from whomever."""
        if aliases != self.aliases:
            self.aliases = aliases
            self._on_aliases(aliases)

    def let_go(self, now_s: float, after_s: float) -> bool:
        """Keys that nobody has named for `after_s` count no more. True if there were any."""
        if self.retired_at is None or now_s - self.retired_at < after_s:
            return False
        self.keyring.replace(self.keyring.publics - self._retired)
        self._retired, self.retired_at = frozenset(), None
        return True

    def saved(self) -> dict[str, msgspec.Raw]:
        """For the disk: what each control node told."""
        return {url: msgspec.Raw(msgspec.json.encode(said)) for url, said in self._said.items()}

    def restore(self, saved: Mapping[str, msgspec.Raw], urls: Sequence[str], now_s: float) -> None:
        """What an earlier process had saved, of control nodes that still count; what cannot be read is left out."""
        for url in urls:
            if url in saved:
                try:
                    info = msgspec.json.decode(saved[url], type=MeshInfo)
                except (msgspec.MsgspecError, ValueError):
                    continue
                self.take(url, info, now_s)
