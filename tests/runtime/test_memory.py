from __future__ import annotations

import mmap
import resource

import numpy as np
import pytest
import torch

from knn_seq.errors import DamagedFile, NotEnoughMemory
from knn_seq.runtime.memory import MemoryNeed, available_memory, lack_of_memory, require_memory


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_lowest_bound_on_memory_holds(tmp_path):
    write(tmp_path / "proc/meminfo", "MemTotal:  9000 kB\nMemFree:  1 kB\nMemAvailable:   8000 kB\n")
    assert available_memory(tmp_path) == 8000 * 1024
    write(tmp_path / "proc/self/cgroup", "0::/box/inner\n")
    write(tmp_path / "sys/fs/cgroup/box/inner/memory.max", "max\n")
    assert available_memory(tmp_path) == 8000 * 1024
    write(tmp_path / "sys/fs/cgroup/box/memory.max", "5000\n")
    assert available_memory(tmp_path) == 5000
    write(tmp_path / "sys/fs/cgroup/memory.max", "4000\n")
    assert available_memory(tmp_path) == 4000


def test_older_control_groups_bound_memory_too(tmp_path):
    write(tmp_path / "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n")
    write(tmp_path / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n")
    assert available_memory(tmp_path) == 7000


def test_this_machine_has_memory(tmp_path):
    all_memory = available_memory(tmp_path)  # no limit is known there
    assert 1 << 20 < available_memory() <= all_memory


def test_what_a_control_group_holds_is_not_free(tmp_path):
    write(tmp_path / "proc/self/cgroup", "0::/box\n")
    box = tmp_path / "sys/fs/cgroup/box"
    write(box / "memory.max", "5000\n")
    write(box / "memory.current", "4000\n")
    assert available_memory(tmp_path) == 1000
    write(box / "memory.stat", "anon 2500\nfile 1500\nactive_file 1000\ninactive_file 500\n")
    assert available_memory(tmp_path) == 2500  # pages of files can be had back


def test_what_an_older_control_group_holds_is_not_free(tmp_path):
    write(tmp_path / "proc/self/cgroup", "4:memory:/\n")
    top = tmp_path / "sys/fs/cgroup/memory"
    write(top / "memory.limit_in_bytes", "7000\n")
    write(top / "memory.usage_in_bytes", "6000\n")
    write(top / "memory.stat", "total_active_file 300\ntotal_inactive_file 200\nactive_file 9999\n")
    assert available_memory(tmp_path) == 1500


def test_too_much_is_refused_with_both_figures(tmp_path):
    write(tmp_path / "proc/meminfo", "MemAvailable: 8000000 kB\nSwapFree: 1000 kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/box\n")
    write(tmp_path / "sys/fs/cgroup/box/memory.max", "5000000000\n")
    require_memory(MemoryNeed(5_001_000_000), "The model", tmp_path)  # with swap it fits
    require_memory(MemoryNeed(0, 10**12), "The file", tmp_path)  # a mapped file need not be in memory
    with pytest.raises(NotEnoughMemory, match=r"The model needs at least 5.1 GB .* \(5 GB\) leaves 5 GB: raise it"):
        require_memory(MemoryNeed(5_100_000_000), "The model", tmp_path)
    write(tmp_path / "sys/fs/cgroup/box/memory.max", "max\n")
    with pytest.raises(NotEnoughMemory, match=r"9 GB of memory, and this machine leaves 8.19 GB"):
        require_memory(MemoryNeed(9_000_000_000), "The model", tmp_path)


def test_limits_of_the_process_bound_memory_and_maps(tmp_path, monkeypatch):
    write(tmp_path / "proc/self/status", "Name:\tpython\nVmSize:\t 400000 kB\nVmData:\t 100000 kB\n")
    limits = {resource.RLIMIT_AS: 3_000_000_000, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (limits[limit], limits[limit]))
    assert available_memory(tmp_path) == 3_000_000_000 - 400_000 * 1024
    with pytest.raises(NotEnoughMemory, match=r"2.6 GB of memory, and `ulimit -v` \(3 GB\) leaves 2.59 GB"):
        require_memory(MemoryNeed(0, 2_600_000_000), "The file", tmp_path)
    limits[resource.RLIMIT_AS], limits[resource.RLIMIT_DATA] = resource.RLIM_INFINITY, 2_000_000_000
    require_memory(MemoryNeed(0, 2_600_000_000), "The file", tmp_path)
    with pytest.raises(NotEnoughMemory, match="ulimit -d"):
        require_memory(MemoryNeed(2_600_000_000), "The model", tmp_path)


def torch_runs_out():
    torch.empty(1 << 60)


def numpy_runs_out():
    np.empty(1 << 55)


def python_runs_out():
    bytearray(1 << 60)


def map_runs_out():
    with open("/dev/zero", "rb") as zeros:
        mmap.mmap(zeros.fileno(), 1 << 46, mmap.MAP_PRIVATE)


@pytest.mark.parametrize("run_out", [torch_runs_out, numpy_runs_out, python_runs_out, map_runs_out])
def test_lack_of_memory_is_recognised(run_out):
    with pytest.raises((MemoryError, RuntimeError, OSError)) as caught:
        run_out()
    assert "Memory ran out" in str(lack_of_memory(caught.value))
    wrapped = DamagedFile("a.h5 is damaged.")
    wrapped.__cause__ = caught.value
    assert "Memory ran out" in str(lack_of_memory(wrapped))


def test_other_errors_are_no_lack_of_memory():
    for error in (ValueError("cannot allocate memory"), OSError(2, "No such file"), DamagedFile("a.h5 is damaged.")):
        assert lack_of_memory(error) is None
