from __future__ import annotations

from knn_seq.runtime.memory import available_memory


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
