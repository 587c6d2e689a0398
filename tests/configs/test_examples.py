"""The annotated examples load, fit their JSON Schema, and say what they claim to say."""

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from reach_cli.config import kind_of, load, schema_of
from reach_control.config import ControlConfig, complete
from reach_core.settings.show import show
from reach_sidecar.config import SidecarConfig

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
EXAMPLES = sorted(path.name for path in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_loads(name: str) -> None:
    kind, config = load(str(CONFIGS / name), None, {})
    assert kind == name.split("-")[0].removesuffix(".yaml")
    assert isinstance(config, SidecarConfig | ControlConfig)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_fits_its_schema(name: str) -> None:
    document = yaml.safe_load((CONFIGS / name).read_text(encoding="utf-8"))
    schema = schema_of(kind_of(str(CONFIGS / name)))
    Draft202012Validator.check_schema(schema)
    errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(document)]
    assert not errors


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_shown_can_be_loaded_again(name: str, tmp_path: Path) -> None:
    kind, config = load(str(CONFIGS / name), None, {})
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(show(config), sort_keys=False, allow_unicode=True), encoding="utf-8")
    _, loaded = load(str(again), kind, {})
    assert show(loaded) == show(config)
    schema = schema_of(kind)
    assert not list(Draft202012Validator(schema).iter_errors(show(config)))


@pytest.mark.parametrize("kind", ["sidecar", "control"])
def test_the_full_example_names_every_setting(kind: str) -> None:
    text = (CONFIGS / f"{kind}.yaml").read_text(encoding="utf-8")
    schema = schema_of(kind)
    known = {name for part in (schema, *schema["$defs"].values()) for name in part["properties"]}
    missing = [name for name in sorted(known) if f"{name}:" not in text]
    assert not missing


def test_the_full_control_example_is_all_defaults() -> None:
    _, config = load(str(CONFIGS / "control.yaml"), None, {})
    shown, defaults = show(config), show(complete(ControlConfig(), {}, root=True))
    assert {**shown, "aliases": {}} == defaults


def test_the_full_sidecar_example_is_the_defaults_where_it_says_so() -> None:
    _, config = load(str(CONFIGS / "sidecar.yaml"), None, {})
    defaults = SidecarConfig()
    for name in ("control", "listen", "default_timeout", "log", "drain", "dedup", "weights", "limits", "insecure"):
        assert getattr(config, name) == getattr(defaults, name), name


def test_every_file_is_in_the_list() -> None:
    listed = (CONFIGS / "README.md").read_text(encoding="utf-8")
    assert [name for name in EXAMPLES if f"({name})" not in listed] == []
