"""Built-in profiles: each loads, is honest about its numbers, and serves the clusters of the catalogue."""

from collections import Counter

import pytest

from mapsearch.errors import InputError, MissingFact
from mapsearch.inventories.profiles import load_profile, profile_for, profile_names, profile_sources
from mapsearch.records import Record, catalogue_names
from mapsearch.topologies.fabric import Device, Fabric, Level
from mapsearch.topologies.load import fabric_of, load_topology

NAMES = (
    "a100",
    "ascend-910b",
    "asic",
    "b200",
    "gaudi2",
    "gb200",
    "gb300",
    "h100",
    "h200",
    "mi300x",
    "tpu-v5e",
    "tpu-v5p",
)
NAMES += ("tpu-v6e", "tpu-v7x", "trainium1")


def fabric(device):
    return Fabric("mine", Device(device, 80e9, 1e12, {"bf16": 1e15}), (Level("node", "switch", 8, 1e9, 1e-6),))


def test_every_family_has_a_profile():
    assert set(NAMES) <= set(profile_names())


def numbers(record, prefix=""):
    """Dotted names of the numbers that a profile states."""
    for name in record.model_fields_set - {"sources", "name", "evidence", "devices"}:
        value = getattr(record, name)
        if isinstance(value, Record):
            yield from numbers(value, f"{name}.")
        else:
            yield prefix + name


@pytest.mark.parametrize("name", profile_names())
def test_every_number_says_where_it_came_from(name):
    profile = load_profile(name)
    assert profile.name == name
    sources = profile_sources(profile)
    stated = set(numbers(profile))
    assert len(stated) > 20
    assert stated == set(sources)
    for source in sources.values():
        assert source.split(":")[0] in ("assumed", "datasheet", "published", "measured", "fitted")


def test_no_device_is_in_two_profiles():
    devices = Counter(device for name in profile_names() for device in load_profile(name).devices)
    assert [device for device, count in devices.items() if count > 1] == []


@pytest.mark.parametrize("name", catalogue_names("mapsearch.topologies"))
def test_every_cluster_of_the_catalogue_has_a_profile(name):
    topology = load_topology(name)
    assert profile_for(fabric_of(topology)).name in profile_names()


@pytest.mark.parametrize(
    ("device", "name"), [("H100 SXM", "h100"), ("h100-sxm", "h100"), ("NVIDIA B200", "b200"), ("TPU v5p", "tpu-v5p")]
)
def test_names_are_read_loosely(device, name):
    assert profile_for(fabric(device)).name == name


def test_unknown_device_is_not_guessed():
    with pytest.raises(MissingFact, match=r"mine: device 'H10': .*did you mean 'h100'.*--profile.*h200"):
        profile_for(fabric("H10"))
    with pytest.raises(MissingFact, match="--profile"):
        profile_for(fabric("XPU 9"))


def test_misspelt_profile_lists_the_names():
    with pytest.raises(InputError, match=r"h1000.*did you mean 'h100'"):
        load_profile("h1000")


def test_profile_from_a_file(tmp_path):
    mine = tmp_path / "mine.yaml"
    peak = "{peak: 0.5}"
    fields = ("gemm", "grouped_gemm", "attention_forward", "attention_backward")
    fields += ("all_reduce", "all_gather", "all_to_all", "point_to_point")
    text = "\n".join(f"{field}: {peak}" for field in fields)
    mine.write_text(f"name: mine\nmemory_bandwidth: 0.5\nruntime_bytes: 1 GB\ncommunicator_bytes: 1 MB\n{text}\n")
    assert load_profile(str(mine)).gemm.peak == 0.5


def test_published_all_to_all_shares():
    # FORMULAS 4.1, implied from Table 7 of arXiv 2603.07685.
    assert load_profile("h100").all_to_all.high_bandwidth_peak == 0.72
    assert 0.81 <= load_profile("h100").all_to_all.peak <= 0.90
    assert 0.62 <= load_profile("gb200").all_to_all.high_bandwidth_peak <= 0.66
