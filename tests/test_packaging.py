"""Static checks of the image, the compose file and the wheel: what breaks in production only."""

import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

ROOT = Path(__file__).parent.parent
SECRETS = ("POSTGRES_PASSWORD", "EPSILOND_MASTER_KEY", "EPSILOND_SIGNING_KEY")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "docker-compose.yml").read_text()
EXAMPLE = (ROOT / ".env.example").read_text()


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load(COMPOSE)["services"]


def instructions(name):
    """The arguments of every `name` instruction in the last stage of the Dockerfile."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", DOCKERFILE))
    stage = re.split(r"(?m)^FROM ", joined)[-1]
    return re.findall(rf"(?m)^{name}\s+(.*)$", stage)


def test_the_expected_services_exist(services):
    assert set(services) == {"postgres", "redis", "migrate", "api", "worker"}


@pytest.mark.parametrize("secret", SECRETS)
def test_compose_refuses_to_start_without_a_secret(secret):
    uses = re.findall(r"\$\{" + secret + r"\b([^}]*)\}", COMPOSE)
    assert uses
    assert all(use.startswith(":?") and len(use) > 2 for use in uses), uses
    assert not re.search(rf"\${secret}\b", COMPOSE)  # the short form lets an empty value through


def test_no_secret_has_a_value_in_the_repository():
    for name, value in re.findall(r"(?m)^(\w+)=(.*)$", EXAMPLE):
        assert name in SECRETS
        assert value == "", f"{name} must be left empty in .env.example"
    assert set(SECRETS) <= set(re.findall(r"(?m)^(\w+)=", EXAMPLE))
    for secret in SECRETS:
        assert secret not in DOCKERFILE
    assert not re.search(r"\b[0-9a-fA-F]{32,}\b", COMPOSE + DOCKERFILE + EXAMPLE)


def test_the_build_context_lists_what_may_enter():
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = set()
    for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", DOCKERFILE):
        copied.update(line.split()[:-1])
    assert copied == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_every_setting_named_is_one_the_service_reads(services):
    Settings = import_module("service.config").Settings
    assert Settings.model_config["env_prefix"] == "EPSILOND_"
    known = {f"EPSILOND_{name.upper()}" for name in Settings.model_fields}
    named = set(re.findall(r"\bEPSILOND_[A-Z0-9_]+", COMPOSE + DOCKERFILE + EXAMPLE))
    assert named
    assert named <= known, f"not settings: {sorted(named - known)}"


def test_redis_keeps_its_queue(services):
    command = services["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "everysec"
    assert options["--maxmemory-policy"] == "noeviction"
    assert any(volume.endswith(":/data") for volume in services["redis"]["volumes"])


def test_workers_scale(services):
    worker = services["worker"]
    assert not {"container_name", "ports", "hostname"} & set(worker)


def test_only_the_api_is_published(services):
    published = {name for name, service in services.items() if service.get("ports")}
    assert published == {"api"}


@pytest.mark.parametrize("name", ["api", "worker"])
def test_nothing_starts_before_the_schema_is_there(services, name):
    needs = services[name]["depends_on"]
    assert needs["migrate"]["condition"] == "service_completed_successfully"
    assert needs["postgres"]["condition"] == "service_healthy"
    assert needs["redis"]["condition"] == "service_healthy"
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    # Otherwise compose would start the migration again and again, and nothing would follow it.
    assert services["migrate"]["restart"] == "no"


def test_api_and_workers_share_datasets_and_keys(services):
    api, worker = services["api"], services["worker"]
    assert api["environment"] == worker["environment"]
    assert api["environment"]["EPSILOND_ENGINE"] == "celery"
    folder = api["environment"]["EPSILOND_DATA_DIR"]
    volumes = [
        {volume for volume in service["volumes"] if volume.endswith(f":{folder}")}
        for service in (api, worker)
    ]
    assert volumes[0] == volumes[1] != set()
    assert f"EPSILOND_DATA_DIR={folder}" in " ".join(instructions("ENV"))


def test_volumes_are_declared(services):
    used = {volume.split(":")[0] for s in services.values() for volume in s.get("volumes", [])}
    assert used == set(yaml.safe_load(COMPOSE)["volumes"])


@pytest.mark.parametrize("name", ["postgres", "redis", "api", "worker"])
def test_long_running_services_restart_and_are_watched(services, name):
    assert services[name]["restart"] == "unless-stopped"
    assert services[name]["healthcheck"]["test"]


def test_roles_are_commands_of_the_cli(services):
    commands = get_command(import_module("service.cli").app).commands
    for name in ("api", "worker", "migrate"):
        role, *options = services[name]["command"]
        assert role == name
        accepted = {text for parameter in commands[role].params for text in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= accepted
    assert instructions("ENTRYPOINT") == ['["epsilond"]']


def test_the_image_does_not_run_as_root():
    users = instructions("USER")
    assert users, "the last stage must set USER"
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), "a number, so that volumes keep an owner"


def test_numba_caches_where_the_user_may_write():
    environment = dict(pair.split("=", 1) for pair in " ".join(instructions("ENV")).split())
    made = [line for line in instructions("RUN") if "install -d" in line]
    assert any(environment["NUMBA_CACHE_DIR"] in line for line in made)
    assert any(environment["EPSILOND_DATA_DIR"] in line for line in made)


def test_images_are_pinned_to_a_version(services):
    images = [services[name]["image"] for name in ("postgres", "redis")]
    python = re.search(r"(?m)^ARG PYTHON=(\S+)$", DOCKERFILE)[1]
    assert re.fullmatch(r"3\.\d+", python)
    assert all(re.search(r":\d+(\.\d+)?-", image) for image in images), images
    assert set(re.findall(r"(?m)^FROM (\S+)", DOCKERFILE)) == {"python:${PYTHON}-slim"}


def built(source, folder):
    """The names in the wheel of a distribution."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        source,
        "--no-deps",
        "--quiet",
        "-w",
        str(folder),
    ]
    run = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (path,) = folder.glob("epsilond*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(".", tmp_path_factory.mktemp("wheel"))


def test_the_clients_wheel_brings_the_client_and_the_licence(tmp_path):
    names = set(built("clients/python", tmp_path))
    package = ROOT / "clients" / "python"
    files = {p.relative_to(package).as_posix() for p in (package / "epsilond").rglob("*.py")}
    assert files | {"epsilond/py.typed"} <= names
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"epsilond"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_the_wheel_brings_the_migrations(wheel):
    assert "service/migrations/env.py" in wheel
    versions = [p.name for p in (ROOT / "migrations" / "versions").glob("*.py")]
    assert versions
    assert {f"service/migrations/versions/{name}" for name in versions} <= set(wheel)


def test_the_wheel_brings_every_file_of_the_packages(wheel):
    """Templates, static files and py.typed too: a wheel without them fails at run time only."""
    skip = {".pyc", ".nbi", ".nbc"}
    for package in ("service", "workers"):
        files = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / package).rglob("*")
            if path.is_file() and path.suffix not in skip and "__pycache__" not in path.parts
        }
        assert files
        assert files <= set(wheel), f"missing: {sorted(files - set(wheel))}"


def test_the_wheel_brings_the_licence_and_nothing_else(wheel):
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"service", "workers"}
