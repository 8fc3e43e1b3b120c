from dataclasses import is_dataclass

import pytest
from ruamel.yaml.scanner import Scanner

from volary.data.sources import ROOM as SOURCES
from volary.session import Choice, Session, SessionError
from volary.session.reading.fields import settings_of
from volary.session.reading.synonyms import SYNONYMS


def refusal(path, overrides=()):
    with pytest.raises(SessionError) as caught:
        Session.read(path, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_every_problem_of_a_file_and_its_overrides_is_reported_at_once(write):
    text = """\
network: lenet
data: {source: digits, batch_size: no, shufle: true}
optimizer:
  name: sgd
  lrr: 0.05
  momentum: 3
train: {epochs: ten, precision: fp8, seed: -1}
strategy: {workers: 0}
"""
    assert refusal(write(text), ["strategy.bucket_mb=-1", "optimizer.lr=fast"]).splitlines() == [
        "session.yaml:2:36: data.batch_size: is 'no'; accepted: a whole number",
        "session.yaml:2:40: data.shufle: unknown; did you mean 'shuffle'? "
        "Known: source, batch_size, batch, shuffle, split, folds, fold, sampling, pad, cache, skip_corrupt",
        "session.yaml:5:3: optimizer.lrr: unknown; did you mean 'lr'? "
        "Known: lr, momentum, dampening, weight_decay, nesterov",
        "command line: optimizer.lr: is 'fast'; accepted: a number",
        "session.yaml:6:13: optimizer.momentum: is 3; accepted: from 0 to below 1",
        "session.yaml:7:17: train.epochs: is 'ten'; accepted: a number or null",
        "session.yaml:7:33: train.precision: is 'fp8'; accepted: one of: fp32, bf16, fp16",
        "session.yaml:7:44: train.seed: is -1; accepted: a whole number from 0 to 2**63 - 1",
        "session.yaml:8:21: strategy.workers: is 0; accepted: a whole number, 1 or more",
        "command line: strategy.bucket_mb: is -1; accepted: above 0",
    ]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("train: {epochs: 1, steps: 2}", "3:17: train.epochs: epochs and steps are both given; accepted: one of them"),
        ("train: {epochs: 0}", "3:17: train.epochs: is 0; accepted: above 0"),
        ("train: {steps: 0}", "3:16: train.steps: is 0; accepted: a whole number, 1 or more"),
        (
            "train: {steps: 6, stop_at: 6 steps}",
            "3:28: train.stop_at: is '6 steps' of 6; accepted: less than the run has, or 'never'",
        ),
        ("train: {accumulate: 0}", "3:21: train.accumulate: is 0; accepted: a whole number, 1 or more"),
        ("train: {clip_norm: 0}", "3:20: train.clip_norm: is 0; accepted: above 0"),
        ("train: {clip_value: -0.5}", "3:21: train.clip_value: is -0.5; accepted: above 0"),
        ("evaluate: {patience: 0}", "3:22: evaluate.patience: is 0; accepted: a whole number, 1 or more"),
        (
            "evaluate: {every: never, patience: 2}",
            "3:36: evaluate.patience: patience counts evaluations, and every is 'never'; "
            "accepted: a period, or no patience",
        ),
        ("checkpoint: {keep_last: 0}", "3:25: checkpoint.keep_last: is 0; accepted: a whole number, 1 or more"),
        ("strategy: {suspect_after_s: 0}", "3:29: strategy.suspect_after_s: is 0; accepted: above 0"),
        (
            "strategy: {give_up_after_s: 2}",
            "3:29: strategy.give_up_after_s: is 2; accepted: at least suspect_after_s, 5",
        ),
        ("strategy: {stuck_after_s: 0}", "3:27: strategy.stuck_after_s: is 0; accepted: above 0, up to 86400 (a day)"),
        ("strategy: {startup_timeout_s: 0}", "3:31: strategy.startup_timeout_s: is 0; accepted: above 0"),
        (
            "strategy: {workers: 65}",
            "2:7: data.batch_size: is 64; accepted: 65 or more, "
            "a sample for each part, or strategy.workers times train.accumulate of at most 64",
        ),
        ("run: {name: a/b}", "3:13: run.name: is 'a/b'; accepted: letters, digits, '.', '_' and '-', at most 100, the "
         "first a letter or a digit"),
        ("run: {folder: ''}", "3:15: run.folder: is ''; accepted: a folder's path"),
        ("engin: local", "3:1: engin: unknown; did you mean 'engine'? Known: network, data, loss, optimizer, schedule, "
         "train, evaluate, checkpoint, strategy, engine, run"),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_named(write, more, sentence):
    assert refusal(write(f"network: lenet\ndata: {{source: digits}}\n{more}\n")) == f"session.yaml:{sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "session.yaml: is empty; `volary init` writes a session file to start from"),
        ("# nothing\n", "session.yaml: is empty; `volary init` writes a session file to start from"),
        ("- lenet\n", "session.yaml:1:1: holds a list; accepted: settings, each as `name: value`"),
        ("lenet\n", "session.yaml:1:1: holds a single value; accepted: settings, each as `name: value`"),
        (b"\xff\xfe", "session.yaml: is not text: byte 0 is not UTF-8"),
        ("a: b: c\n", "session.yaml:1:5: is not valid YAML: mapping values are not allowed here"),
        ("a: [1\n", "session.yaml:2:1: is not valid YAML: expected ',' or ']', but got '<stream end>'; "
         "is the '[' at line 1, column 4 closed?"),
        ("a: 1\nb: {c: 1\nd: 2\n", "session.yaml:3:2: is not valid YAML: expected ',' or '}', but got ':'; "
         "is the '{' at line 2, column 4 closed?"),
        ("\ta: 1\n", "session.yaml:1:1: is not valid YAML: a tab; YAML indents with spaces"),
        ("a:\n\tb: 1\n", "session.yaml:2:1: is not valid YAML: a tab; YAML indents with spaces"),
        ("a: 1\n---\nb: 2\n", "session.yaml:2:1: is not valid YAML: a second document begins here; "
         "accepted: one session a file"),
        ("a: *b\n", "session.yaml:1:4: is not valid YAML: found undefined alias 'b'"),
        ("a: \x01\n", "session.yaml: is not valid YAML: unacceptable character #x0001: special characters are not "
         'allowed in "<unicode string>", position 3'),
        ("[" * 600, "session.yaml: is nested too deeply"),
        ("a: " + "[" * 5000 + "]" * 5000, "session.yaml: is nested too deeply"),
        ("a: " + "{a: " * 5000 + "}" * 5000, "session.yaml: is nested too deeply"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_session_is_one_clear_sentence(write, text, sentence):
    assert refusal(write(text)) == sentence


def test_a_missing_file_and_a_folder_are_one_clear_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal("session.yml") == "session.yml: no such file; `volary init` writes one to start from"
    assert refusal(".") == ".: is a folder; accepted: a session file"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("train: {seed: 1}\ntrain: {seed: 2}", "session.yaml:7:1: train: is given twice (first at session.yaml:6:1)"),
        ("train: {seed: 1, seed: 2}", "session.yaml:6:18: train.seed: is given twice (first at session.yaml:6:9)"),
        ("train: {seed: !mine 1}",
         "session.yaml:6:15: train.seed: has the tag !mine; accepted: plain values without tags"),
        ("train: {[1]: 2}", "session.yaml:6:9: train: a name that is a list or a mapping; accepted: text"),
        ("loss: {name: 'm:f', x: &a [*a]}",
         "session.yaml:6:24: loss.x: holds itself (an alias to what is around it)"),
    ],
)  # fmt: skip
def test_traps_of_yaml_are_refused(write, short, more, sentence):
    text = short.replace("train: {epochs: 10}\n", "run: {}\n")
    assert refusal(write(text + more + "\n")) == sentence


def test_a_few_lines_that_mean_billions_of_values_are_refused(write):
    bomb = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert refusal(write(bomb)) == "session.yaml: holds more than 100000 values"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("optimizer.lr", "command line: 'optimizer.lr' is not NAME=VALUE; did you mean optimizer.lr=...?"),
        ("0.1", "command line: '0.1' is not NAME=VALUE; accepted: a setting and its value, as in optimizer.lr=0.1"),
        ("adam", "command line: 'adam' is not NAME=VALUE; accepted: a setting and its value, as in optimizer.lr=0.1"),
        ("=1", "command line: '=1' is not NAME=VALUE; accepted: a setting and its value, as in optimizer.lr=0.1"),
        ("a..b=1", "command line: 'a..b=1' is not NAME=VALUE; accepted: a setting and its value, as in "
         "optimizer.lr=0.1"),
        ("optimizer.lrr=1", "command line: optimizer.lrr: unknown; did you mean 'lr'? "
         "Known: lr, momentum, dampening, weight_decay, nesterov"),
        ("optimiser.lr=1", "command line: optimiser: unknown; did you mean 'optimizer'? Known: network, data, loss, "
         "optimizer, schedule, train, evaluate, checkpoint, strategy, engine, run"),
        ("train.seed=[1", "command line: train.seed: is not valid YAML: expected ',' or ']', but got '<stream end>'; "
         "is the '[' at line 1, column 1 closed?"),
        ("lr=0.1", "command line: lr: unknown; did you mean optimizer.lr=0.1?"),
        ("epochs=3", "command line: epochs: unknown; did you mean train.epochs=3?"),
        ("every=2 epochs", "command line: every: unknown; did you mean evaluate.every=2 epochs or "
         "evaluate.text.every=2 epochs or checkpoint.every=2 epochs?"),
        ("data.size=16", "command line: data.size: unknown; did you mean data.source.size=16?"),
        ("optimizer.lr=1e400", "command line: optimizer.lr: is inf; accepted: a finite number"),
        (
            "optimizer.lr=-9223372036854775809",
            "command line: optimizer.lr: is -9223372036854775809; accepted: a number of 64 bits",
        ),
        (
            "data.batch_size=99999999999999999999999999",
            "command line: data.batch_size: is 99999999999999999999999999; accepted: a whole number of 64 bits",
        ),
        (
            "train.steps=9223372036854775808",
            "command line: train.steps: is 9223372036854775808; accepted: a whole number of 64 bits or null",
        ),
        ("optimizer.lr=nan", "command line: optimizer.lr: is 'nan'; accepted: a finite number"),
        ("train.epochs=.inf", "command line: train.epochs: is inf; accepted: a finite number or null"),
        ("train.seed=", "command line: train.seed: is null; accepted: a whole number"),
        ("train.seed.x=1", "command line: train.seed.x: train.seed holds a value and no settings of its own"),
        ("run.name=7", "command line: run.name: is 7; accepted: text or null (in quotes: '7')"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_one_clear_sentence(write, short, override, sentence):
    text = short.replace("train: {epochs: 10}", "train: {epochs: 10, seed: 3}")
    assert refusal(write(text), [override]) == sentence


def test_brackets_by_the_thousand_are_refused_before_most_of_them_are_read(write, monkeypatch):
    opened = []
    start = Scanner.fetch_flow_collection_start
    monkeypatch.setattr(Scanner, "fetch_flow_collection_start", lambda *a, **k: opened.append(1) or start(*a, **k))
    refusal(write("a: " + "[" * 50_000 + "]" * 50_000))
    assert len(opened) < 2_000


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "network: lenet\ndata: {source: digits}\nlr: 0.1\n",
            ["session.yaml:3:1: lr: is a setting of the optimizer 'sgd'; write optimizer: {name: sgd, lr: 0.1}"],
        ),
        (
            "network: lenet\ndata: {source: digits}\nearly_stopping: {patience: 2}\nlearning_rate: 0.1\n",
            [
                "session.yaml:3:1: early_stopping: unknown here; did you mean evaluate.patience? "
                "Write evaluate: {patience: 2}",
                "session.yaml:4:1: learning_rate: unknown here; did you mean optimizer.lr? Write optimizer: {lr: 0.1}",
            ],
        ),
        (
            "network: lenet\ndata: {source: digits}\nearly_stopping: {monitor: loss}\nema: {decay: 0.9}\n",
            [
                "session.yaml:3:1: early_stopping: unknown here; did you mean evaluate.patience? "
                "Write evaluate: {patience: ...}",
                "session.yaml:4:1: ema: unknown here; 'ema' is an average: "
                "write train: {average: {name: ema, decay: 0.9}}",
            ],
        ),
        (
            "network: lenet\ndata: {source: digits}\n"
            "train: {ema: 0.9, average: {decay: 0.9}}\nschedule: {floor: 0.1}\n",
            [
                "session.yaml:3:9: train.ema: unknown here; 'ema' is an average: write average: {name: ema, ...}",
                "session.yaml:3:28: train.average: lacks a name; decay can be set for ema; "
                "write average: {name: ema, decay: 0.9}",
                "session.yaml:4:11: schedule: lacks a name; floor can be set for cosine, cyclic, plateau, restarts; "
                "write schedule: {name: cosine, floor: 0.1}",
            ],
        ),
        (
            "network: lenet\ndata: {source: {name: lmdb, path: x}}\noptimizer: {name: sgd, learning_rate: 1}\n",
            [
                "session.yaml:2:29: data.source.path: unknown; did you mean 'train'? Known: "
                + ", ".join(settings_of(SOURCES.load("lmdb"))),
                "session.yaml:2:16: data.source.train: is missing; accepted: a path or a URL (s3://bucket/folder)",
                "session.yaml:3:24: optimizer.learning_rate: unknown; did you mean 'lr'? Known: lr, momentum, "
                "dampening, weight_decay, nesterov",
            ],
        ),
        (
            "network: lenet\ndata: {source: digits}\noptimizer: {name: adam, lr: 0.1}\ntrain:\nepochs: 3\n",
            ["session.yaml:5:1: epochs: unknown here; did you mean train.epochs? Write train: {epochs: 3}"],
        ),
        (  # no section, which is no place for a number or a name
            "network: lenet\ndata: {source: {name: text, path: t.txt, train: 3}}\n",
            ["session.yaml:2:42: data.source.train: unknown; Known: path, merges, length, lines, validation"],
        ),
        (
            "network: lenet\ndata: {source: idx, folder: mnist, mean: 0.1}\n",
            [
                "session.yaml:2:21: data.folder: is a setting of the source 'idx'; "
                "write source: {name: idx, folder: mnist, mean: 0.1}",
                "session.yaml:2:36: data.mean: is a setting of the source 'idx'; "
                "write source: {name: idx, folder: mnist, mean: 0.1}",
                "session.yaml:2:16: data.source.folder: is missing; accepted: a path or a URL (s3://bucket/folder)",
            ],
        ),
        (
            "network: lenet\ndata: {source: idx, path: x}\n",
            [
                "session.yaml:2:21: data.path: unknown; settings of the source 'idx' are written inside it: "
                "source: {name: idx, folder: x}",
                "session.yaml:2:16: data.source.folder: is missing; accepted: a path or a URL (s3://bucket/folder)",
            ],
        ),
        (
            "network: lenet\ndata: {source: idx, path: x, bach_size: 3}\n",
            [
                "session.yaml:2:21: data.path: unknown; settings of the source 'idx' are written inside it: "
                "source: {name: idx, folder: ...}",
                "session.yaml:2:30: data.bach_size: unknown; settings of the source 'idx' are written inside it: "
                "source: {name: idx, folder: ...}",
                "session.yaml:2:16: data.source.folder: is missing; accepted: a path or a URL (s3://bucket/folder)",
            ],
        ),
    ],
)
def test_a_setting_in_the_wrong_place_is_told_its_own(write, text, sentences):
    assert sorted(refusal(write(text)).splitlines()) == sorted(sentences)


@pytest.mark.parametrize(
    ("name", "near"),
    [("CosineAnnealingLR", "cosine"), ("OneCycleLR", "one_cycle"), ("reduce_on_plateau", "plateau"), ("Step", "step")],
)
def test_the_name_of_a_schedule_elsewhere_finds_ours(write, name, near):
    text = f"network: lenet\ndata: {{source: digits}}\nschedule: {name}\n"
    start = f"session.yaml:3:11: schedule: unknown name {name!r}; did you mean {near!r}? Known: "
    assert refusal(write(text)).startswith(start)


@pytest.mark.parametrize("name", SYNONYMS)
def test_a_name_that_other_trainers_use_is_none_of_ours(name):
    sections = (hint for hint in settings_of(Session).values() if isinstance(hint, type) and is_dataclass(hint))
    assert not any(name in settings_of(section) for section in sections)


def test_what_is_missing_hides_no_other_mistake(write):
    text = "data: {batch_size: -3}\nstrategy: {exchange: server}\ntrain: {precision: fp16}\n"
    assert refusal(write(text)).splitlines() == [
        "session.yaml:1:7: data.source: is missing; accepted: " + Choice("volary.data.sources", user=True).in_words(),
        "session.yaml:1:20: data.batch_size: is -3; accepted: a whole number, 1 or more",
        "session.yaml:1:1: network: is missing; accepted: " + Choice("volary.network.zoo", user=True).in_words(),
        "session.yaml:3:20: train.precision: is fp16, and with exchange=server parameters are updated slice by slice; "
        "accepted: fp32 or bf16",
    ]


def test_a_plug_in_that_lacks_what_it_needs_is_checked_all_the_same(write):
    text = "network: lenet\ndata: {source: {name: idx, std: 0}}\n"
    assert [line.split(": ")[1] for line in refusal(write(text)).splitlines()] == [
        "data.source.folder",
        "data.source.std",
    ]


def test_the_same_advice_is_given_in_python():
    with pytest.raises(SessionError) as caught:
        Session(network="lenet", data={"source": "idx", "folder": "mnist"})
    assert "write source={'name': 'idx', 'folder': 'mnist'}" in str(caught.value)


@pytest.mark.parametrize("name", ["ssp", "async", "backup"])
def test_a_model_that_needs_a_server_says_so_where_another_exchange_is_asked_for(write, short, name):
    overrides = [f"strategy.consistency={name}", "strategy.exchange=allreduce"]
    assert refusal(write(short), overrides) == (
        f"command line: strategy.consistency: is {name}, and with exchange=allreduce every worker has all parameters, "
        "as of one step; accepted: exchange=server, or consistency=bsp"
    )
