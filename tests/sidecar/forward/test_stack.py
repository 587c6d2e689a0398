"""The layers and their order: that is the behaviour."""

from harness.sidecars import Mesh, ok


def layers(outermost: object) -> list[str]:
    names = []
    layer: object | None = outermost
    while layer is not None:
        names.append(type(layer).__name__)
        layer = getattr(layer, "_inner", getattr(layer, "_send", None))
    return names


async def test_order(inner: Mesh) -> None:
    b = await inner.node("b", ok(), "summarize")
    outbound = b.sidecar._outbound.service.handler
    mesh = b.sidecar._mesh.service.handler
    assert layers(outbound._call) == ["Observe", "Rescue", "Target", "Pin", "Attempt", "Send"]  # type: ignore[attr-defined]
    assert layers(mesh._call) == ["Observe", "Rescue", "Authorise", "Once", "Admit", "Deliver"]  # type: ignore[attr-defined]
