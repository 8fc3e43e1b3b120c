"""Each variant of tables, arrays, IDX files, lists and text that docs/data.md names: read rightly, or refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from data._table_cases import (
    NAN,
    ROWS,
    TABLE,
    Case,
    arrays,
    csv,
    idx,
    images,
    listing,
    npy_bytes,
    npz,
    picture,
    rows,
    shards,
    text,
)
from data._variants import rows_of
from volary.data.remarks import remarks_of
from volary.errors import DataError

FORMATS = ("csv", "parquet", "arrays", "idx", "list", "text")


LIST = "a.png 0\nb c.png 1\n"
POEM = "abcdabcdabcd"
CUT = gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 60000, 28, 28) + np.random.default_rng(0).bytes(9000))[:4000]
HALF = bytes(range(256)) * 40

CASES: dict[tuple[str, str], Case | list[Case]] = {
    ("csv", "columns of `test` in another order"): csv(TABLE, test="b,a,label\n2,1,0\n4,3,1\n"),
    ("csv", "a column that `test` lacks"): csv(
        TABLE, "test.csv: has no column 'b'; it has label, a", test="label,a\n0,1\n"
    ),
    ("csv", "a column that only `test` has"): csv(
        TABLE, test="label,c,a,b\n0,7,1,2\n1,8,3,4\n", remarks=("test.csv: 1 column is not read: c",)
    ),
    ("csv", "two columns of one name"): csv(
        "label,a,a\n0,1,2\n", "train.csv: has 2 columns 'a'; accepted: names that differ"
    ),
    ("csv", "a column without a name"): csv(",a,label\n1,2,0\n", "train.csv: column 1 of the header has no name"),
    ("csv", "blanks around names and values"): csv('label, a, b\n0, 1, "2"\n1 , 3 ,4\n'),
    ("csv", "a row with more or fewer values than the header"): csv(
        "label,a,b\n0,1\n", "train.csv:2: has 2 values; its header has 3"
    ),
    ("csv", "lines that end in CRLF or CR, blank lines"): csv("\r\n" + TABLE.replace("\n", "\r\n\r\n") + "   \r"),
    ("csv", "quoted values, with separators, quotes and line ends in them"): csv(
        'label,a,b\n"x, ""y""\nz","1",2\nu,3,"4"\n'
    ),
    ("csv", "a quote that is not closed"): csv(
        'label,a\n"0,1\n1,2\n', "train.csv:3: cannot be read (unexpected end of data)"
    ),
    ("csv", "a byte order mark of UTF-8"): csv(b"\xef\xbb\xbf" + TABLE.encode()),
    ("csv", "UTF-16, UTF-32"): [
        csv(TABLE.encode(encoding), "train.csv: is UTF-16 or UTF-32; accepted: a table with a header")
        for encoding in ("utf-16", "utf-32")
    ],
    ("csv", "UTF-16 without a mark, bytes that are no text"): [
        csv(TABLE.encode("utf-16-le"), "train.csv: is binary, or UTF-16: byte 1 is 0"),
        csv(bytes(range(1, 256)), "train.csv:2: has the byte 0x80, which is not UTF-8"),
        csv(b"\x01\x1b[31m,x\ny\n", "train.csv: has no column 'label'; it has '\\x01\\x1b[31m', x"),
    ],
    ("csv", "Latin-1 and other encodings"): csv(
        "label,a\nx,1\né,2\n".encode("latin-1"), "train.csv:3: has the byte 0xe9, which is not UTF-8"
    ),
    ("csv", "compressed (`.gz`, `.bz2`, `.xz`, `.zst`), Excel's"): [
        csv(gzip.compress(TABLE.encode()), "train.csv: is compressed (gzip)"),
        csv(bz2.compress(TABLE.encode()), "train.csv: is compressed (bzip2)"),
        csv(lzma.compress(TABLE.encode()), "train.csv: is compressed (xz)"),
        csv(b"\x28\xb5\x2f\xfd" + bytes(9), "train.csv: is compressed (zstd)"),
        csv(b"PK\x03\x04" + bytes(9), "train.csv: is a zip archive, as files of Excel are"),
        csv(b"PAR1" + bytes(9), "train.csv: is Parquet"),
    ],
    ("csv", "another separator than `separator`"): csv(
        TABLE, "train.csv: its header has no ';' between names, but ','; accepted: separator: ','", separator=";"
    ),
    ("csv", "lines of comments"): csv(
        "label,a\n# measured twice\n0,1\n", "train.csv:2: has 1 values; its header has 2"
    ),
    ("csv", "a number that is missing: empty, `NA`, `NaN`, `null`, `?` and the like"): [
        csv(f"label,a,b\n0,1,2\n1,{said},4\n", "train.csv:3: a is missing")
        for said in ("", " ", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?", "<NA>")
    ],
    ("csv", "the same with `missing: skip`"): csv(
        "label,a,b\n0,1,2\n,5,6\n0,nan,4\n1,3,4\n",
        missing="skip",
        remarks=("train.csv:3: is the first of the rows that lack a value and are skipped: 2 of 4",),
    ),
    ("csv", "the same with `missing: mean`"): csv(
        "label,a,b\n0,1,2\n1,?,4\n0,3,6\n",
        [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]],
        missing="mean",
        remarks=("train.csv:3: a: is the first of the missing values that become the column's mean: 1",),
    ),
    ("csv", "a label that is missing"): [
        csv(f"label,a\n0,1\n{said},2\n", "train.csv:3: has ") for said in ("", "NA", "nan", "NAN", "null")
    ]
    + [csv("label,a\n0,1\n,2\n", "train.csv:3: label is missing", kind="number")],
    ("csv", "infinity, and numbers beyond float32"): [
        csv(f"label,a\n0,1\n1,{said}\n", "train.csv:3: a is ", **settings)
        for said in ("1e400", "inf", "-Infinity", "1e39")
        for settings in ({}, {"standardise": True}, {"missing": "skip"}, {"missing": "mean"})
    ]
    + [csv("label,a\n0,1\ninf,2\n", "train.csv:3: label is inf", kind="number")]
    + [csv("label,a\n0,\n1,inf\n2,1\n", "train.csv:3: a is inf", missing="mean")],
    ("csv", "whole numbers that float32 has not, as they are (`standardise: false`)"): [
        csv("label,a\n0,16777217\n", "train.csv:2: a is 16777217.0, which float32 makes 16777216.0"),
        csv("label,a\n16777217,1\n", "train.csv:2: label is 16777217.0, which float32 makes", kind="number"),
    ],
    ("csv", "`1_000`, `1,5`, `0x10`, `True`, `5 %`"): [
        csv(f'label,a\n0,1\n1,"{said}"\n', f"train.csv:3: a is '{said}'; accepted: a number, as 1.5")
        for said in ("1_000", "1,5", "0x10", "True", "5 %", "1_0.5", "12e")
    ],
    ("csv", "labels that are numbers with fractions, or below 0"): [
        csv(f"label,a\n1,1\n{said},2\n", f"train.csv:3: has the label '{said}'; accepted: names, or whole numbers")
        for said in ("0.5", "-1", "1e3")
    ],
    ("csv", "whole numbers with a point as labels"): csv("label,a,b\n1.0,1,2\n0,3,4\n"),
    ("csv", "a label of `test` that `train` has not"): csv(
        TABLE, "test.csv:4: has the label '5'; accepted: 0 to 1, as in", test="label,a,b\n1,1,2\n\n5,1,2\n"
    ),
    ("csv", "numbers as labels beyond 9,999,999"): csv(
        "label,a\n0,1\n10000000,2\n",
        "train.csv:3: has the label '10000000'; accepted: the number of a class, 0 to 9,999,999",
    ),
    ("parquet", "files of one part with int32 and int64, float and double, half floats, decimals, booleans"): shards(
        rows("int32"),
        rows("float32", (1.5, 3)),
        rows("float16"),
        rows("decimal"),
        rows("bool_", (True, False)),
        expected=[*ROWS, [1.5, 2.0], [3.0, 4.0], *ROWS, *ROWS, [1.0, 2.0], [0.0, 4.0]],
    ),
    ("parquet", "labels as string, large string, dictionary, binary in files of one part"): shards(
        *(rows(labels=("x", "y"), label_kind=kind) for kind in ("string", "large_string", "dictionary", "binary")),
        expected=4 * ROWS,
    ),
    ("parquet", "null or NaN in a number, a file that has nothing else"): shards(
        rows(), rows("null", (None, None)), expected="d/1.parquet: row 0: a is missing, or NaN"
    ),
    ("parquet", "the same with `missing: skip`"): shards(
        rows(a=(1, None)),
        rows(a=(NAN, 3)),
        missing="skip",
        expected=ROWS,
        remarks=("d/0.parquet: row 1: is the first of the rows that lack a value and are skipped: 2 of 4",),
    ),
    ("parquet", "the same with `missing: mean`"): shards(
        rows(a=(1, 3)),
        rows("null", (None, None)),
        missing="mean",
        expected=[*ROWS, [2.0, 2.0], [2.0, 4.0]],
        remarks=("d/1.parquet: row 0: a: is the first of the missing values that become the column's mean: 2",),
    ),
    ("parquet", "a label that is null"): shards(
        rows(), rows(labels=(None, 1)), expected="d/1.parquet: row 0: has no label"
    ),
    ("parquet", "with `kind: number`, a target that is null"): shards(
        rows(), rows(labels=(None, 1)), expected="d/1.parquet: row 0: label is missing, or NaN", kind="number"
    ),
    ("parquet", "with `kind: number`, texts as targets"): shards(
        rows(labels=("a", "b"), label_kind="string"),
        expected="d/0.parquet: label is of the type string; accepted: numbers, or kind: class",
        kind="number",
    ),
    ("parquet", "whole numbers that float32 has not"): shards(
        rows("int64", (1, 2**24 + 1)), expected="d/0.parquet: row 1: a is 16777217, which float32 makes 16777216.0"
    ),
    ("parquet", "texts, dates or lists as inputs"): shards(
        rows("string", ("1", "2")),
        expected="d/0.parquet: a is of the type string; accepted: numbers, or one column of encoded images",
    ),
    ("parquet", "dates or lists as labels"): shards(
        rows(labels=(0, 1), label_kind="date32"),
        expected="d/0.parquet: label is of the type date32[day]; accepted: whole numbers or names",
    ),
    ("parquet", "columns in another order in files of one part"): shards(
        rows(), lambda arrow: arrow.table({"b": [2, 4], "a": [1, 3], "label": [0, 1]}), expected=2 * ROWS
    ),
    ("parquet", "a column that a file lacks"): shards(
        rows(),
        lambda arrow: arrow.table({"b": [2, 4], "label": [0, 1]}),
        expected="d/1.parquet: has no column 'a'; it has b, label",
    ),
    ("parquet", "two columns of one name"): shards(
        lambda arrow: arrow.table([[0], [1], [2]], names=["label", "a", "a"]), expected="d/0.parquet: has 2 columns 'a'"
    ),
    ("parquet", "encoded images as binary, large binary, `{bytes, path}` in files of one part"): shards(
        *images(
            ("binary", [picture()]), ("large_binary", [picture()]), ("structure", [{"bytes": picture(), "path": "x"}])
        ),
        expected=3 * [[[[1.0, 1.0]]] * 3],
        inputs=("image",),
    ),
    ("parquet", "an image that is null"): shards(
        *images(("binary", [picture(), None])), expected="d/0.parquet: row 1: image is null", inputs=("image",)
    ),
    ("parquet", "paths instead of images"): shards(
        *images(("binary", [picture()]), ("string", ["x.png"])),
        expected="d/1.parquet: image is of the type string",
        inputs=("image",),
    ),
    ("parquet", "images beside other inputs"): shards(
        *images(("binary", [picture()])),
        expected="d: image has encoded images; accepted: inputs with this column alone",
        inputs=("image", "label"),
    ),
    ("parquet", "a truncated file"): Case(
        {"d/0.parquet": b"PAR1" + bytes(99)}, "d/0.parquet: truncated", {"train": "d", "test": "d"}
    ),
    ("parquet", "other columns, other files in the folder"): Case(
        {"d/0.parquet": shards(rows(), expected=()).files["d/0.parquet"], "d/notes.txt": "x"},
        [[2.0], [4.0]],
        {"train": "d", "test": "d", "inputs": ("b",)},
        remarks=("d: 1 file is not read: notes.txt", "d: 1 column is not read: a"),
    ),
    ("arrays", "big-endian numbers"): [
        arrays(np.array(ROWS, dtype=kind), ROWS, np.array([0, 1], dtype=targets))
        for kind, targets in ((">f4", ">i2"), (">f8", ">i8"), ("<f4", ">u4"), (">f4", ">f4"))
    ],
    ("arrays", "float64, longdouble"): arrays(np.array(ROWS, dtype=np.longdouble), ROWS),
    ("arrays", "Fortran order"): arrays(np.asfortranarray(np.array(ROWS, dtype=np.float32)), ROWS),
    ("arrays", "NaN and infinity in inputs"): arrays(
        [[1.0, 2.0], [3.0, NAN]], "train_inputs.npy: row 1 of inputs is missing, or NaN"
    ),
    ("arrays", "the same with `missing: keep`"): arrays(
        [[1.0, 2.0], [3.0, NAN]], [[1.0, 2.0], [3.0, NAN]], missing="keep"
    ),
    ("arrays", "NaN and infinity in targets"): arrays(
        ROWS, "train_targets.npy: row 0 of targets is inf", [np.inf, 1.0]
    ),
    ("arrays", "whole numbers of float64 that float32 has not"): arrays(
        [[2.0**24 + 1, 1.0]], "train_inputs.npy: row 0 of inputs is 16777217.0, which float32 makes 16777216.0", [0]
    ),
    ("arrays", "booleans as targets"): arrays(ROWS, ROWS, [False, True]),
    ("arrays", "bytes in `train`, int64 in `test` as targets"): Case(
        arrays(ROWS, ROWS).files | {"train_targets.npy": lambda path: np.save(path, np.array([0, 1], dtype=np.uint8))},
        ROWS,
        {"folder": "."},
        "test",
    ),
    ("arrays", "a class that is negative, beyond those of `train`, or beyond 9,999,999"): [
        arrays(ROWS, "train_targets.npy: row 1 of targets is -1; accepted: a class, 0 to 4", [4, -1]),
        arrays(ROWS, "train_targets.npy: row 1 of targets is 10000000; accepted: a class, 0 to 9999999", [4, 10**7]),
        arrays(ROWS, "train_targets.npy: row 0 of targets is 18446744073709551615", np.array([2**64 - 1, 0], "u8")),
    ],
    ("arrays", "rows without values"): arrays(
        np.zeros((2, 0)), "train_inputs.npy: a row of inputs has no value; accepted: at least one"
    ),
    ("arrays", "a second array in a `.npy`"): Case(
        arrays(ROWS, ROWS).files
        | {"train_inputs.npy": lambda path: path.write_bytes(2 * npy_bytes(np.array(ROWS, dtype=np.float32)))},
        "train_inputs.npy: more follows after its array of 144 bytes",
        {"folder": "."},
    ),
    ("arrays", "rows of another shape in `test`, or floats there and bytes in `train`"): [
        arrays(ROWS, "test_inputs.npy: a row of inputs is floats (1,); accepted: floats (2,)", test=[[1.0], [2.0]]),
        arrays(
            np.array(ROWS, dtype=np.uint8),
            "test_inputs.npy: a row of inputs is floats (2,); accepted: bytes",
            test=ROWS,
        ),
    ],
    ("arrays", "float32 in `train`, float64 in `test`"): arrays(np.array(ROWS, dtype=np.float32), ROWS, test=ROWS),
    ("arrays", "objects, structures, texts, dates, complex numbers"): [
        arrays(values, "train_inputs.npy: inputs is ")
        for values in (
            np.array(["x", "y"]),
            np.zeros(2, dtype=[("a", "f4")]),
            np.zeros(2, dtype="datetime64[s]"),
            np.zeros((2, 2), dtype=complex),
        )
    ],
    ("arrays", "other arrays in a `.npz`"): npz(ROWS, ("train.npz: 1 array is not read: notes",), notes=np.zeros(2)),
    ("arrays", "other files in the folder"): Case(
        npz(ROWS).files | {"train_inputs.npy": lambda path: np.save(path, np.zeros(2))},
        ROWS,
        {"folder": "."},
        remarks=(": 1 file is not read: train_inputs.npy",),
    ),
    ("idx", "`.gz`"): idx([[[[0.0, 1.0]]], [[[1.0, 0.0]]]], **{"train-images-idx3-ubyte.gz": gzip.compress}),
    ("idx", "a truncated file, also as `.gz`"): idx(
        "train-images-idx3-ubyte.gz: truncated: its header says 60000x28x28, 47040016 bytes in all; found",
        **{"train-images-idx3-ubyte.gz": lambda _: CUT},
    ),
    ("idx", "signed bytes, integers, floats (types 9 to 14)"): idx(
        "train-images-idx3-ubyte: starts with 00 00 0d 03; accepted: 00 00 08 03",
        **{"train-images-idx3-ubyte": lambda whole: b"\0\0\x0d" + whole[3:]},
    ),
    ("idx", "a label that no class has"): idx(
        "t10k-labels-idx1-ubyte: sample 1 has the label 2; accepted: 0 to 1",
        **{"t10k-labels-idx1-ubyte": lambda whole: whole[:-1] + b"\2"},
    ),
    ("idx", "other files in the folder"): idx(
        [[[[0.0, 1.0]]], [[[1.0, 0.0]]]], (": 1 file is not read: train-notes",), **{"train-notes": lambda _: b"x"}
    ),
    ("list", "blanks in paths, CRLF, blank lines"): listing(LIST.replace("\n", "\r\n\r\n")),
    ("list", "a byte order mark"): listing(b"\xef\xbb\xbf" + LIST.encode()),
    ("list", "UTF-16, compressed"): [
        listing(LIST.encode("utf-16"), "train.txt: is UTF-16 or UTF-32"),
        listing(gzip.compress(LIST.encode()), "train.txt: is compressed (gzip)"),
    ],
    ("list", "a line without a label, a label that is missing"): [
        listing("a.png\n", "train.txt:1: has no label: 'a.png'"),
        listing("a.png 0\nb c.png NA\n", "train.txt:2: has the label 'NA'; accepted: a number or a name"),
    ],
    ("list", "labels that are numbers with fractions, or below 0"): listing(
        "a.png 0.5\nb c.png 1\n", "train.txt:1: has the label '0.5'; accepted: names, or whole numbers"
    ),
    ("list", "a label of `test` that `train` has not"): listing(
        LIST, "test.txt:2: has the label 'x'; accepted: 0 to 1", test="a.png 0\na.png x\n"
    ),
    ("text", "a byte order mark"): text(b"\xef\xbb\xbf" + POEM.encode(), ["ab", "cd"]),
    ("text", "CRLF"): text("ab\r\n" * 4, ["ab", "\r\n", "ab"]),
    ("text", "UTF-16, compressed, bytes that are no text"): [
        text(gzip.compress(HALF), "t.txt: is compressed (gzip)"),
        text(POEM.encode("utf-16"), "t.txt: is UTF-16"),
        text(HALF, "t.txt: is binary"),
    ],
    ("text", "Latin-1 and other encodings"): text(b"abcd\nabcd\xe9", "t.txt:2: has the byte 0xe9, which is not UTF-8"),
    ("text", "with `lines: true`, lines longer than `length`"): text(
        "ab\nabcd\n\r\nabc\nabc\n",
        2,
        ("t.txt: 1 of 2 lines of the train part are longer than length (2) and are cut",),
        lines=True,
    ),
}


def test_the_table_has_these_rows():
    assert set(rows_of(*FORMATS)) == set(CASES)


@pytest.mark.parametrize(
    ("row", "case"),
    [
        pytest.param(row, case, id=" ".join(row))
        for row, cases in CASES.items()
        for case in (cases if isinstance(cases, list) else [cases])
    ],
)
def test_a_variant_becomes_what_its_row_says(row, case, tmp_path):
    becomes = rows_of(*FORMATS)[row]
    assert becomes.startswith("refused") == (isinstance(case.expected, str)), becomes
    if isinstance(case.expected, str):
        with pytest.raises(DataError) as problem:
            case.opened(row[0], tmp_path)
        assert str(problem.value).startswith(f"{tmp_path}/{case.expected}")
        return
    samples = case.opened(row[0], tmp_path)
    inputs, targets = samples.fetch(torch.arange(len(samples)))
    if row[0] == "list":
        assert (tuple(targets.tolist()), samples.classes) == case.expected
    elif row[0] == "text" and not isinstance(case.expected, int):
        assert ["".join(samples.vocabulary[symbol] for symbol in one) for one in inputs] == case.expected
    elif row[0] == "text":
        assert len(samples) == case.expected
    else:
        torch.testing.assert_close(inputs, torch.tensor(case.expected), rtol=0, atol=0, equal_nan=True)
    assert remarks_of(samples) == tuple(f"{tmp_path}/{remark}".replace("/:", ":") for remark in case.remarks)


@pytest.mark.parametrize("part", ["train", "test"])
def test_numbers_of_a_parquet_column_are_targets_with_the_kind_number(part, tmp_path):
    values = shards(
        rows(labels=(0.5, None), label_kind="float64"),
        rows(labels=(-3, 2)),
        expected=(),
        kind="number",
        missing="skip",
    )
    samples = replace(values, part=part).opened("parquet", tmp_path)
    inputs, targets = samples.fetch(torch.arange(len(samples)))
    assert (inputs.tolist(), targets.tolist()) == ([[1, 2], [1, 2], [3, 4]], [[0.5], [-3], [2]])
    assert (targets.dtype, samples.classes) == (torch.float32, None)


def test_numbers_beside_encoded_images_are_targets_with_the_kind_number(tmp_path):
    pictures = images(("binary", [picture(), picture()]))
    samples = shards(*pictures, expected=(), kind="number", inputs=("image",)).opened("parquet", tmp_path)
    inputs, targets = samples.fetch(torch.arange(2))
    assert (inputs.shape[0], targets.tolist(), targets.dtype) == (2, [[0], [0]], torch.float32)
