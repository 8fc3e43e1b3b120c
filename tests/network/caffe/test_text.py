"""Protobuf's text format: what prototxt files may hold, and what is said of those that are damaged."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.errors import SettingError
from volary.network.caffe.findings import Findings
from volary.network.caffe.reading.text import MOST_DEPTH, parse, read_text
from volary.network.caffe.reading.text_writer import in_text


def net(text, findings=None):
    return parse(text, "Net", findings or Findings("net.prototxt"))


def test_all_ways_of_writing_a_value_mean_the_same():
    plain = net('layer { name: "c" type: "Convolution" convolution_param { kernel_size: 3 kernel_size: 5 pad: 1 } }')
    other = net(
        "# a comment\nlayer: < name: 'c'; type: 'Convo' \"lution\", "
        "convolution_param: {kernel_size: [3, 0x5] pad: 01};>"
    )
    assert plain.all("layer")[0].part("convolution_param").all("kernel_size") == [3, 5]
    assert in_text(plain) == in_text(other)


def test_enums_numbers_and_texts_in_all_their_forms():
    layer = net(
        'layer { phase: 1 loss_weight: [-1, .5, 2e-1f, inf, 1.] name: "a\\n\\x41\\101\\"\\\'" propagate_down: true }'
    ).all("layer")[0]
    assert layer.one("phase") == "TEST"
    assert layer.all("loss_weight") == [-1.0, 0.5, 0.2, float("inf"), 1.0]
    assert layer.one("name") == "a\nAA\"'"
    assert layer.one("propagate_down") is True


def test_what_is_not_there_has_the_default():
    pooling = net("layer { pooling_param { } }").all("layer")[0].part("pooling_param")
    assert (pooling.one("pool"), pooling.one("stride"), pooling.one("round_mode")) == ("MAX", 1, "CEIL")
    assert net("layer { }").all("layer")[0].part("lrn_param").one("beta") == 0.75


def test_a_field_that_nobody_knows_is_read_over_and_named_with_its_line():
    findings = Findings("net.prototxt")
    found = net('name: "n"\nlayer {\n  type: "X"\n  x_param { a: 1 b { c: [1, 2] } d: "}" }\n  name: "l"\n}', findings)
    assert found.all("layer")[0].one("name") == "l"
    assert findings.ignored == ["net.prototxt:4: field 'x_param' is unknown in Layer"]


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        ('layer {\n  name: "a"', "2:12", "the file ends where '}' is missing"),
        ("layer { name: 3 }", "1:15", "name is '3'; accepted: a text in quotes"),
        ("layer {\n type 'X' }", "2:7", "\"'X'\" where ':' is expected after type"),
        ("layer { phase: SOME }", "1:16", "phase is 'SOME'; accepted: TRAIN, TEST"),
        ("layer { pooling_param { stride: -1 } }", "1:33", "stride is '-1'; accepted: a whole number from 0"),
        ("layer { pooling_param { stride: 99999999999 } }", "1:33", "stride is '99999999999'"),
        ("layer { convolution_param: 3 }", "1:28", "'3' where '{' is expected: convolution_param is a message"),
        ("layer { name { } }", "1:9", "name is a message; accepted: a text in quotes"),
        ("layer }", "1:7", "'}' where '{' is expected: layer is a message"),
        ("}", "1:1", "'}' where a field's name is expected"),
        ("name: [1, ", "1:8", "name is '1'"),
        ('name: "open\n', "1:7", "'\"' is no part of the text format"),
        ("a: - b", "1:6", "'b' where a number is expected after '-'"),
        ("input_dim: [1 2]", "1:15", "'2' where ',' or ']' is expected"),
        ("x: 1 }", "1:6", "'}' where a field's name is expected"),
    ],
)
def test_a_mistake_is_one_sentence_with_line_and_column(text, place, sentence):
    with pytest.raises(SettingError) as error:
        net(text)
    assert str(error.value).startswith(f"net.prototxt:{place}: {sentence}"), str(error.value)
    assert "\n" not in str(error.value)


def test_messages_nested_too_deep_and_too_many_values_are_refused():
    with pytest.raises(SettingError, match=f"nested more than {MOST_DEPTH} deep"):
        net("x {" * 100_000)
    with pytest.raises(SettingError, match=r"has more than 50,000 values"):
        net("x: 1 " * 60_000)


def test_files_of_comments_and_of_unknown_fields_alone_are_read_in_time_that_grows_with_their_size():
    assert not net("# nothing\n" * 300_000 + "\n" * 1_000_000).values
    findings = Findings("net.prototxt")
    net("\n".join(f"x{number}: 1" for number in range(40_000)), findings)
    assert (len(findings.ignored), findings.ignored[-1]) == (
        40_000,
        "net.prototxt:40000: field 'x39999' is unknown in Net",
    )


def test_files_that_are_missing_too_large_or_no_text_are_refused(tmp_path):
    with pytest.raises(SettingError, match=r"none.prototxt: No such file"):
        read_text(tmp_path / "none.prototxt", "Net")
    file = tmp_path / "net.prototxt"
    file.write_bytes(b"name: 'a'\nname: '\xff'")
    with pytest.raises(SettingError, match=r"net.prototxt:2: is no UTF-8 text"):
        read_text(file, "Net")
    file.write_bytes(b" " * (4 * 2**20 + 1))
    with pytest.raises(SettingError, match="has more than 4 MiB"):
        read_text(file, "Net")


VALID = """name: "net" input: "data" input_dim: [1, 3, 8, 8]
layer { name: "c" type: "Convolution" bottom: "data" top: "c" param { lr_mult: 2.5 } # weights
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
"""


@given(st.data())
def test_a_file_with_characters_changed_or_cut_is_read_or_refused_in_one_sentence(data):
    text = list(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from("{}<>[]:;,'\"#\\-0a\n\x00é"))
    cut = "".join(text)[: data.draw(st.integers(0, len(text)))]
    try:
        found = net(cut)
    except SettingError as error:
        assert re.fullmatch(r"net\.prototxt:\d+:\d+: [^\n]+", str(error))
    else:
        assert in_text(net(in_text(found))) == in_text(found)
