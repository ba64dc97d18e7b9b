"""What the service stands on: PostgreSQL and Redis of its own, small disks, networks that can be cut.

Disks and networks need root on Linux. Where that is not given, `ImpossibleError` says why.
"""

import os
import secrets
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.programs import Program
from tests.harness import free_port
from tools import servers

POSTGRES = {
    "max_connections": 200,
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
    "log_min_messages": "fatal",
}
DISK_MEGABYTES = 1024


class ImpossibleError(RuntimeError):
    """A fault that cannot be made here, and why."""


def needs(*commands):
    """That we are root and that these commands are there."""
    if os.geteuid() != 0:
        raise ImpossibleError("it takes root")
    if missing := [name for name in commands if shutil.which(name) is None]:
        raise ImpossibleError(
            f"{' and '.join(missing)} is not installed (apt-get install iproute2)"
        )


def command(*words, why):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImpossibleError(f"{why}: {' '.join(map(str, words))}: {done.stderr.strip()}")


class Disk:
    """A folder on a file system of its own, which can be filled to its last byte."""

    def __init__(self, folder, megabytes, stack):
        needs("mount")
        options = f"size={megabytes}m"
        command("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder, why="no small disk")
        stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=False)
        self.folder = folder

    @contextmanager
    def full(self):
        filler = self.folder / "filler"
        try:
            with filler.open("wb") as file:
                free = os.statvfs(self.folder)
                size = free.f_bavail * free.f_frsize
                while size >= free.f_frsize:  # others write and remove meanwhile
                    try:
                        end = os.fstat(file.fileno()).st_size
                        os.posix_fallocate(file.fileno(), end, size)
                    except OSError:
                        size //= 2
            yield
        finally:
            filler.unlink(missing_ok=True)


class Network:
    """Servers, APIs and workers, as if on three machines: PostgreSQL and Redis in a namespace of their
    own, the workers in another, and a cable from either place to the servers."""

    PLACES = ("apis", "workers")

    def __init__(self, stack):
        needs("ip")
        token, number = secrets.token_hex(2), 1 + secrets.randbelow(250)
        self._spaces = {name: f"chaos-{token}-{name}" for name in ("servers", "workers")}
        for space in self._spaces.values():
            command("ip", "netns", "add", space, why="no network namespaces")
            stack.callback(subprocess.run, ["ip", "netns", "del", space], check=False)
        self.hosts, self._ends = {}, {}
        for index, place in enumerate(self.PLACES):
            near, far = f"ch{token}{place[0]}0", f"ch{token}{place[0]}1"
            here = self._spaces.get(place)
            addresses = [f"10.{number}.{index}.{last}" for last in (1, 2)]
            command("ip", "link", "add", near, "type", "veth", "peer", "name", far, why="no veth")
            for end, space, address in (
                (near, here, addresses[0]),
                (far, self._spaces["servers"], addresses[1]),
            ):
                if space is not None:
                    command("ip", "link", "set", end, "netns", space, why="no veth")
                self._ip(space, "address", "add", f"{address}/30", "dev", end)
                self._ip(space, "link", "set", end, "up")
            self.hosts[place], self._ends[place] = addresses[1], (far, addresses[0])
        for space in self._spaces.values():
            self._ip(space, "link", "set", "lo", "up")

    def _ip(self, space, *words):
        inside = ["-n", space] if space else []
        command("ip", *inside, *words, why="the network cannot be set up")

    def inside(self, name):
        """What is put before a command that shall run there."""
        space = self._spaces.get(name)
        return ["ip", "netns", "exec", space] if space else []

    @contextmanager
    def unplugged(self, place):
        """The servers' end of the cable is down: nothing passes, in either direction."""
        end, servers_space = self._ends[place][0], self._spaces["servers"]
        self._ip(servers_space, "link", "set", end, "down")
        try:
            yield
        finally:
            self._ip(servers_space, "link", "set", end, "up")

    @contextmanager
    def deaf(self, place):
        """Requests arrive, and no answer does: whoever asked cannot know whether it was done."""
        route, space = f"{self._ends[place][1]}/32", self._spaces["servers"]
        self._ip(space, "route", "add", "blackhole", route)
        try:
            yield
        finally:
            self._ip(space, "route", "del", "blackhole", route)


class Postgres(Program):
    """A cluster of its own, with everything on its disk."""

    def __init__(self, folder, log, prefix=(), network=False):
        binaries = servers.postgres_binaries(folder)
        data, self.port, self._sockets = folder / "postgres", free_port(), folder
        data.mkdir(mode=0o700)
        servers.hand_over(folder)
        user = servers.unprivileged()
        initdb = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
        options = servers.server_options(folder)
        fine, output = servers.attempt([*initdb, "-E", "UTF8", "--locale=C"], **options)
        if not fine:
            raise RuntimeError(f"initdb failed: {output[-2000:]}")
        if network:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all 10.0.0.0/8 trust\n")
        settings = [f"-c{name}={value}" for name, value in POSTGRES.items()]
        hosts = "*" if network else "127.0.0.1"
        as_user = (
            ["setpriv", f"--reuid={user['user']}", f"--regid={user['group']}", "--clear-groups"]
            if user
            else []
        )
        words = [binaries / "postgres", "-D", data, "-h", hosts, "-p", self.port, "-k", folder]
        super().__init__(
            "postgresql", [*as_user, *words, *settings], log, options["env"], prefix, folder
        )

    def url(self, host="127.0.0.1", database="epsilond"):
        return f"postgresql+psycopg://postgres@{host}:{self.port}/{database}"

    def own_url(self, database="epsilond"):
        """By its socket file: a way to it that no network fault cuts."""
        return f"postgresql+psycopg://postgres@/{database}?host={self._sockets}&port={self.port}"


class Redis(Program):
    """A broker that keeps nothing on disk: killed, it has forgotten everything."""

    def __init__(self, folder, log, prefix=(), network=False):
        self.port, self.socket = free_port(), folder / "redis.sock"
        hosts = ["0.0.0.0"] if network else ["127.0.0.1"]
        words = [servers.redis_binary(folder), "--port", self.port, "--dir", folder, "--save", ""]
        words += ["--bind", *hosts, "--protected-mode", "no", "--unixsocket", self.socket]
        super().__init__("redis", words, log, dict(os.environ), prefix, folder)

    def url(self, host="127.0.0.1"):
        return f"redis://{host}:{self.port}/0"

    def own_url(self):
        return f"unix://{self.socket}"


class Ground:
    """Everything below the service; with `disks` and a `network` if these are among the needs."""

    def __init__(self, folder, stack: ExitStack, needs=()):
        self.folder, self.data = Path(folder), Path(folder) / "data"
        self.servers = servers.server_folder(stack)  # where PostgreSQL's own user gets to
        self.disks = {}
        for name, place in (("data", self.data), ("servers", self.servers)):
            place.mkdir(exist_ok=True)
            if "disks" in needs:
                self.disks[name] = Disk(place, DISK_MEGABYTES, stack)
        self.network = Network(stack) if "network" in needs else None
        self.log = self.folder / "service.log"
        self.log.touch()

    def host(self, place):
        return self.network.hosts[place] if self.network else "127.0.0.1"

    def inside(self, place):
        return self.network.inside(place) if self.network else []
