"""Caffe's binary files: weights, means and snapshots, of any age; what is said of those that are damaged."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.data.formats.mean_file import read_mean
from volary.errors import DataError, SettingError
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.reading.binary import read_binary, written
from volary.network.caffe.weights.blob import blob_from, blob_of
from volary.network.caffe.weights.files import read_weights
from volary.protobuf import field

WEIGHT, BIAS = np.arange(24, dtype=np.float32).reshape(4, 6) / 7, np.array([1, -2, 3, 4], dtype=np.float32)


def layer(kind="Layer", *, legacy=False, name="ip"):
    blobs = [blob_from(one, legacy=legacy) for one in (WEIGHT, BIAS)]
    return CaffeMessage(kind).add("name", name).add("blobs", *blobs)


def file_of(tmp_path, message, name="net.caffemodel"):
    file = tmp_path / name
    file.write_bytes(written(message) if isinstance(message, CaffeMessage) else message)
    return file


def test_what_is_written_is_read_again():
    net = CaffeMessage("Net").add("name", "é").add("layer", layer().add("phase", "TEST").add("loss_weight", 0.5, 2.0))
    net.all("layer")[0].add("include", CaffeMessage("NetStateRule").add("min_level", -3))
    found = read_binary(written(net), "Net")
    assert written(found) == written(net)
    assert found.all("layer")[0].all("loss_weight") == [0.5, 2.0]
    assert found.all("layer")[0].all("include")[0].one("min_level") == -3
    assert blob_of(found.all("layer")[0].all("blobs")[0]).shape == (4, 6)


@pytest.mark.parametrize("age", ["V0", "V1", "current"])
def test_weights_of_every_age_are_the_same_values(tmp_path, age):
    if age == "current":
        net = CaffeMessage("Net").add("layer", layer())
    elif age == "V1":
        net = CaffeMessage("Net").add("layers", layer("V1Layer", legacy=True).add("type", "INNER_PRODUCT"))
    else:
        inner = layer("V0Layer", legacy=True).add("type", "innerproduct")
        net = CaffeMessage("Net").add("layers", CaffeMessage("V1Layer").add("layer", inner))
    weight, bias = read_weights(file_of(tmp_path, net))["ip"]
    assert np.array_equal(weight.values().reshape(4, 6), WEIGHT)
    assert np.array_equal(bias.values().reshape(4), BIAS)


def test_values_in_double_precision_and_unpacked_ones_are_read(tmp_path):
    double = CaffeMessage("BlobProto").add("shape", CaffeMessage("BlobShape").add("dim", 2))
    double.add("double_data", struct.pack("<2d", 0.5, -3.0))
    assert blob_of(double).values().tolist() == [0.5, -3.0]
    one = b"".join(b"\x2d" + struct.pack("<f", one) for one in (1.0, 2.0)) + field(7, field(1, 2))
    assert blob_of(read_binary(one, "BlobProto")).values().tolist() == [1.0, 2.0]


def test_hdf5_weights_are_read_as_caffe_writes_them(tmp_path):
    h5py = pytest.importorskip("h5py", reason="needs the extra hdf5")
    with h5py.File(tmp_path / "net.caffemodel.h5", "w") as opened:
        for number, values in enumerate((WEIGHT, BIAS)):
            opened.create_dataset(f"data/ip/{number}", data=values)
        opened.create_group("data/relu")
    found = read_weights(tmp_path / "net.caffemodel.h5")
    assert list(found) == ["ip"]
    assert np.array_equal(found["ip"][0].values(), WEIGHT)
    (tmp_path / "cut.h5").write_bytes((tmp_path / "net.caffemodel.h5").read_bytes()[:100])
    with pytest.raises(SettingError, match=r"cut\.h5: is no HDF5 file that can be read"):
        read_weights(tmp_path / "cut.h5")


def test_means_are_read_from_both_formats(tmp_path):
    mean = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    binary = file_of(tmp_path, blob_from(mean, legacy=True), "mean.binaryproto")
    np.save(tmp_path / "mean.npy", mean)
    assert np.array_equal(read_mean(binary), mean)
    assert np.array_equal(read_mean(tmp_path / "mean.npy"), mean)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"objects\.npy: is no array of numbers"):
        read_mean(tmp_path / "objects.npy")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has 0 bytes; accepted: above 0"),
        (b"name: 'net'\n", "is no binary protobuf of a Net"),
        (field(77, 1), "is neither text nor binary protobuf: it has no field of a Net"),
        (field(100, field(7, field(5, b"abcde"))), "data has 5 bytes, which are no values of 4"),
        (field(100, field(1, b"ip") + field(7, field(7, field(1, 3)) + field(5, b"abcd"))), "layer 'ip': blob 0 has 1"),
        (field(100, field(7, field(7, field(1, 2**62) + field(1, 2**62)))), "blob 0 has 0 values for the sizes"),
        (field(100, field(7, field(7, field(1, -4)))), r"blob 0 has the sizes \[-4\]"),
        (field(100, b"") * 110_000, "more than 100,000 values"),
    ],
)
def test_a_file_that_is_something_else_is_refused_in_one_sentence(tmp_path, content, sentence):
    with pytest.raises(SettingError, match=rf"net\.caffemodel: [^\n]*{sentence}[^\n]*$"):
        read_weights(file_of(tmp_path, content))


WHOLE = written(CaffeMessage("Net").add("name", "n").add("layer", layer(), layer(name="other", legacy=True)))


@given(st.data())
def test_damaged_weights_are_read_or_refused_in_one_sentence_and_in_little_memory(tmp_path_factory, data):
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(content[: data.draw(st.integers(1, len(content)))])
    file = file_of(tmp_path_factory.mktemp("damaged"), cut)
    tracemalloc.start()
    try:
        found = read_weights(file)
    except SettingError as error:
        assert all(str(file) in line for line in str(error).splitlines())
    else:
        assert sum(blob.count for blobs in found.values() for blob in blobs) <= len(cut)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2**20
