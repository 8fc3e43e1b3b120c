import pytest

from volary.session import Session, SessionError


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
        "session.yaml:2:40: data.shufle: unknown; did you mean 'shuffle'? Known: source, batch_size, batch, shuffle",
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
        ("strategy: {startup_timeout_s: 0}", "3:31: strategy.startup_timeout_s: is 0; accepted: above 0"),
        (
            "strategy: {workers: 65}",
            "2:7: data.batch_size: is 64; accepted: 65 or more, "
            "a sample for each part (strategy.workers times train.accumulate)",
        ),
        ("run: {name: a/b}", "3:13: run.name: is 'a/b'; accepted: a folder's name, without '/' and not beginning "
         "with '.'"),
        ("run: {folder: ''}", "3:15: run.folder: is ''; accepted: a folder's path"),
        ("engin: local", "3:1: engin: unknown; did you mean 'engine'? Known: network, data, loss, optimizer, schedule, "
         "train, evaluate, checkpoint, strategy, engine, run"),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_named(write, more, sentence):
    assert refusal(write(f"network: lenet\ndata: {{source: digits}}\n{more}\n")) == f"session.yaml:{sentence}"


def test_a_name_that_is_planned_says_so(write, short):
    text = short.replace("{workers: 2}", "{consistency: gossip}")
    assert refusal(write(text)).startswith(
        "session.yaml:5:25: strategy.consistency: 'gossip' is planned but not built yet; available: "
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "session.yaml: is empty; `volary init` writes a session file to start from"),
        ("# nothing\n", "session.yaml: is empty; `volary init` writes a session file to start from"),
        ("- lenet\n", "session.yaml:1:1: holds a list; accepted: settings, each as `name: value`"),
        ("lenet\n", "session.yaml:1:1: holds a single value; accepted: settings, each as `name: value`"),
        (b"\xff\xfe", "session.yaml: is not text: byte 0 is not UTF-8"),
        ("a: b: c\n", "session.yaml:1:5: is not valid YAML: mapping values are not allowed here"),
        ("a: [1\n", "session.yaml:2:1: is not valid YAML: expected ',' or ']', but got '<stream end>' "
         "while parsing a flow sequence"),
        ("\ta: 1\n", "session.yaml:1:1: is not valid YAML: found character '\\t' that cannot start any token "
         "while scanning for the next token"),
        ("a: 1\n---\nb: 2\n", "session.yaml:2:1: is not valid YAML: but found another document "
         "expected a single document in the stream"),
        ("a: *b\n", "session.yaml:1:4: is not valid YAML: found undefined alias 'b'"),
        ("a: \x01\n", "session.yaml: is not valid YAML: unacceptable character #x0001: special characters are not "
         'allowed in "<unicode string>", position 3'),
        ("[" * 600, "session.yaml: is nested too deeply"),
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
        ("optimizer.lr", "command line: 'optimizer.lr' is no override; accepted: name=value, as in optimizer.lr=0.1"),
        ("=1", "command line: '=1' is no override; accepted: name=value, as in optimizer.lr=0.1"),
        ("a..b=1", "command line: 'a..b=1' is no override; accepted: name=value, as in optimizer.lr=0.1"),
        ("optimizer.lrr=1", "command line: optimizer.lrr: unknown; did you mean 'lr'? "
         "Known: lr, momentum, dampening, weight_decay, nesterov"),
        ("optimiser.lr=1", "command line: optimiser: unknown; did you mean 'optimizer'? Known: network, data, loss, "
         "optimizer, schedule, train, evaluate, checkpoint, strategy, engine, run"),
        ("train.seed=[1", "command line: train.seed: is not valid YAML: expected ',' or ']', but got '<stream end>' "
         "while parsing a flow sequence"),
        ("train.seed=", "command line: train.seed: is null; accepted: a whole number"),
        ("train.seed.x=1", "command line: train.seed.x: train.seed holds a value and no settings of its own"),
        ("run.name=7", "command line: run.name: is 7; accepted: text or null (in quotes: '7')"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_one_clear_sentence(write, short, override, sentence):
    text = short.replace("train: {epochs: 10}", "train: {epochs: 10, seed: 3}")
    assert refusal(write(text), [override]) == sentence
