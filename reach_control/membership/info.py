"""What holds mesh-wide besides the table, as this node tells it: a document whose version grows when it changes."""

from collections.abc import Callable, Mapping
from hashlib import blake2b

from reach_control.identity.keys import NodeKeys
from reach_core.messages import MeshInfo, encode


class Info:
    """`on_new` is called with each new version. `refresh` after anything in it may have changed, and now and then:
    keys change with time."""

    def __init__(self, keys: NodeKeys, aliases: Mapping[str, list[str]], on_new: Callable[[int], None]) -> None:
        self._keys = keys
        self._aliases = dict(aliases)
        self._on_new = on_new
        self.version = 0
        self.encoded = b""

    def rename(self, aliases: Mapping[str, list[str]]) -> None:
        """Other aliases from now on; `refresh` has to follow."""
        self._aliases = dict(aliases)

    def refresh(self, now_ms: int) -> bool:
        """Make the document anew. True if it is another one than before."""
        mesh_keys, current = self._keys.mesh_keys(now_ms)
        content = MeshInfo(version=0, aliases=self._aliases, keys=sorted(self._keys.keyring.publics),
                           mesh_keys=mesh_keys, mesh_key=current)
        digest = blake2b(encode(content), digest_size=16).digest()
        version, known = self._keys.info
        is_new = digest != known
        if is_new:
            version = max(now_ms, version + 1)
            self._keys.told(version, digest)
        if is_new or not self.encoded:
            self.version = version
            self.encoded = encode(MeshInfo(version=version, aliases=self._aliases, keys=content.keys,
                                           mesh_keys=mesh_keys, mesh_key=current))
        if is_new:
            self._on_new(version)
        return is_new
