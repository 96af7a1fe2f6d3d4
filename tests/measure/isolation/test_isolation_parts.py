"""The parts of the isolation alone: what is passed on, what may be read, versions of Landlock, the filter on two processors."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gensor_gym.locate import ROOT
from gensor_gym.measure.isolation import landlock, launch, seccomp
from gensor_gym.measure.isolation.environment import OF_USER, passed_on
from gensor_gym.measure.isolation.readable import beneath_home, loaded, readable
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers import start
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.requests import TrialRequest
from tests.support.measure_kernels import build, kernel

KEPT = {
    "PATH": "/bin", "LC_ALL": "C", "GENSOR_GYM_THREADS": "2", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0",
    "PYTHONPATH": "x",
}  # fmt: skip
LEFT_OUT = (
    "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HF_TOKEN", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
    "CUDA_TOKEN", "TORCH_HUB_PASSWORD", "python_token", "OPENAI_KEY", "RAY_ADDRESS", "http_proxy",
)  # fmt: skip


def test_variables_of_the_list_are_passed_on_and_no_others() -> None:
    given = KEPT | dict.fromkeys(LEFT_OUT, "secret") | {"HOME": "/home/me"}
    assert passed_on(given) == KEPT
    assert passed_on(given, OF_USER) == KEPT | {"HOME": "/home/me"}


def test_the_home_and_what_is_above_it_may_not_be_read(tmp_path: Path) -> None:
    home, python = tmp_path / "home", tmp_path / "home" / "venv"
    python.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(home)
    paths = [str(path) for path in (python, home, tmp_path, link, python, tmp_path / "none", Path("/"))]
    assert beneath_home(paths, home) == [str(python)]


def test_packages_that_are_loaded_may_be_read_wherever_they_lie() -> None:
    assert str(ROOT / "gensor_gym") in readable() and str(Path.home()) not in readable() and "/" not in readable()


def test_libraries_beside_those_that_are_loaded_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this user has no files."""
    lines = [f"7f00-7f01 r-xp 0 fe:00 12    {path}" for path in ("/sw/gcc/lib/libx.so.6", "/home/me/a b/liby.so", "/bin/cat")]
    (tmp_path / "maps").write_text("\n".join([*lines, "7f02-7f03 rw-p 0 00:00 0", "7f02-7f03 rw-p 0 00:00 0    [heap]"]))
    monkeypatch.setattr(os, "access", lambda folder, mode: folder.startswith("/home"))
    assert loaded(str(tmp_path / "maps")) == ["/home/me/a b/liby.so", "/sw/gcc/lib", "/sw/gcc/lib/libx.so.6"]
    assert loaded(str(tmp_path / "none")) == []


def test_kernels_of_the_cache_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled network loads a library for each of its kernels; others that lie elsewhere are still readable."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    own = [tmp_path / "cache" / "kernels" / f"{number}.so" for number in range(2000)]
    other = tmp_path / "other.so"
    for file in (*own, other):
        file.touch()
    listed = {*map(str, own), str(tmp_path / "cache" / "kernels")}
    monkeypatch.setattr("gensor_gym.measure.isolation.readable.loaded", lambda: [*listed, str(other)])
    found = readable()
    assert str(other) in found and not listed & {*found}
    assert sum(map(len, found)) < 100_000


def test_a_worker_that_does_not_start_says_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "launched", lambda rules: [sys.executable, "-c", "raise ImportError('libx.so.6')"])
    worker = WorkerProcess("cpu")
    with pytest.raises(WorkerLost, match="(?s)died in stage start: exit code 1; .*libx.so.6.*GENSOR_GYM_ISOLATION=off starts"):
        worker.ask("anything")


VERSIONS = """
import os, sys
sys.path.insert(0, sys.argv[1])
import landlock
found, inside, outside = {}, sys.argv[2] + "/inside", sys.argv[2] + "/outside"
for number in range(1, landlock.version() + 1):
    child = os.fork()
    if child == 0:
        landlock.version = lambda: number
        done = landlock.restrict(["/none", inside, inside + "/file"], [sys.argv[2] + "/scratch"])
        open(inside + "/file").close()
        open(sys.argv[2] + "/scratch/new", "w").close()
        refused = 0
        for path, mode in ((outside + "/file", "r"), (inside + "/file", "a"), (inside + "/made", "w"), (outside + "/made", "w")):
            try:
                open(path, mode)
            except PermissionError:
                refused += 1
        os._exit(refused if done else 99)
    print(number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not landlock.version(), reason="this system has no Landlock, or a container forbids it")
def test_every_version_of_landlock_up_to_that_of_this_system(tmp_path: Path) -> None:
    for name in ("inside", "outside", "scratch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    command = [sys.executable, "-P", "-c", VERSIONS, str(Path(landlock.__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [f"{number} 4" for number in range(1, landlock.version() + 1)]


OPEN = """
import os, sys
sys.path.insert(0, sys.argv[1])
import landlock

assert landlock.restrict(sys.argv[2:] + ["/proc/self/fd"], [])
for name in os.listdir("/proc/self/fd"):
    try:
        print(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:  # that of the list itself
        continue
"""


@pytest.mark.skipif(not landlock.version(), reason="this system has no Landlock, or a container forbids it")
def test_what_stands_in_proc_keeps_its_inode(tmp_path: Path) -> None:
    """For want of memory the system drops names of /proc that nobody has open; found anew they have inodes without rights."""
    names = ["/proc/cpuinfo", "/proc/sys/vm", str(tmp_path)]
    command = [sys.executable, "-P", "-c", OPEN, str(Path(landlock.__file__).parent), *names]
    held = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {*names[:2]} <= {*held} and str(tmp_path) not in held


def verdict(steps: list[bytes], architecture: int, number: int, argument: int = 0) -> str:
    """What a filter says of a system call, by the rules of classic BPF."""
    call, value, at = {0: number, 4: architecture, 16: argument}, 0, 0
    while True:
        code, yes, no, constant = struct.unpack("=HBBI", steps[at])
        if code == 0x06:
            errors = {0x50000 | errno.EPERM: "refused", 0x50000 | errno.ENOSYS: "unknown"}
            return {0x7FFF0000: "allowed", 0x80000000: "killed", **errors}[constant]
        holds = {0x20: False, 0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
        value = call[constant] if code == 0x20 else value
        at += 1 + (0 if code == 0x20 else yes if holds else no)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter(machine: str) -> None:
    known, column, _ = seccomp._ARCHITECTURES[machine]
    steps = list(seccomp.program(known, column, pid=77))
    numbers = {"read": (0, 63), "futex": (202, 98), "mmap": (9, 222), "openat": (257, 56), "sched_setaffinity": (203, 122)}
    for name, pair in seccomp.REFUSED.items():
        assert pair[column] == -1 or verdict(steps, known, pair[column]) == "refused", name
    assert {verdict(steps, known, pair[column]) for pair in numbers.values()} == {"allowed"}
    assert verdict(steps, known ^ 1, 0) == "killed" and verdict(steps, known, 435) == "unknown"
    clone, tgkill, prlimit = ((56, 234, 302), (220, 131, 261))[column]
    assert [verdict(steps, known, clone, flags) for flags in (0x3D0F00, 17, 0x4111)] == ["allowed", "refused", "refused"]
    assert [verdict(steps, known, tgkill, pid) for pid in (77, 78, 0)] == ["allowed", "refused", "refused"]
    assert [verdict(steps, known, prlimit, pid) for pid in (77, 78, 0)] == ["allowed", "refused", "allowed"]
    if machine == "x86_64":
        assert verdict(steps, known, 0x40000000 | 41) == "refused"


def test_limits_are_lowered_and_never_raised() -> None:
    text = (
        "import resource as r, sys; sys.path.insert(0, sys.argv[1]); import launch; r.setrlimit(r.RLIMIT_FSIZE, (5000, 6000));"
        "launch.limit(r.RLIMIT_FSIZE, 7000); print(r.getrlimit(r.RLIMIT_FSIZE)); launch.limit(r.RLIMIT_FSIZE, 40);"
        "print(r.getrlimit(r.RLIMIT_FSIZE))"
    )
    folder = str(Path(launch.__file__).parent)
    done = subprocess.run([sys.executable, "-P", "-c", text, folder], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "(5000, 5000)\n(40, 40)\n"


STAND_IN = """
import sys
from types import SimpleNamespace
sys.path.insert(0, {folder!r})
import launch
landlock = SimpleNamespace(no_new_privileges=lambda: True, restrict=lambda *paths: False)
launch._neighbour = lambda name: landlock if name == "landlock" else SimpleNamespace(
    restrict=lambda: {seccomp}, VARIABLE="GENSOR_GYM_COUNTERS", opened=lambda: ""
)
del sys.path[0]
launch.main(sys.argv[1], sys.argv[2:])
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("has_filter", "bound"), [(False, "none"), (True, "seccomp")])
def test_a_system_without_landlock_is_named_and_kernels_run(
    has_filter: bool, bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "launch.py"
    script.write_text(STAND_IN.format(folder=str(Path(launch.__file__).parent), seccomp=has_filter))
    monkeypatch.setattr(start, "launched", lambda rules: [sys.executable, "-P", str(script), rules])
    worker = WorkerProcess("cpu")
    rules = TimingRules(budget=0.01, sample=5e-4, warmup=1e-3)
    try:
        with pytest.warns(RuntimeWarning, match=f"isolation is {bound}, expected landlock.seccomp"):
            result = worker.ask(TrialRequest(build(kernel("right"), tmp_path), 1, 0.0, rules=rules))
    finally:
        worker.close()
    assert result.status is Status.OK and result.conditions["isolation"] == bound


@pytest.mark.thorough
def test_a_worker_may_read_more_than_an_argument_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process has it that loaded thousands of kernels of its own, or of torch.compile."""
    many = [str(tmp_path / f"{number:0100}.so") for number in range(3000)]
    for name in many:
        Path(name).touch()
    own = readable()
    monkeypatch.setattr(start, "readable", lambda: [*own, *many])
    worker = WorkerProcess("cpu")
    try:
        result = worker.ask(TrialRequest(build(kernel("right"), tmp_path), 1, 0.0, rules=TimingRules(budget=0.01, sample=5e-4)))
    finally:
        worker.close()
    assert result.status is Status.OK and result.conditions["isolation"] == launch.WHOLE


def test_a_library_that_others_may_write_to_is_no_trial(tmp_path: Path) -> None:
    worker, built = WorkerProcess("cpu"), build(kernel("right"), tmp_path)
    os.chmod(built.path, 0o777)
    try:
        result = worker.ask(TrialRequest(built, 1, 0.0))
    finally:
        worker.close()
    assert result.status is Status.LAUNCH_ERROR and "can be written by others" in result.error


def test_another_word_for_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(start.SWITCH, "none")
    with pytest.raises(ValueError, match="GENSOR_GYM_ISOLATION='none': expected on or off"):
        start.start_of("cpu")
