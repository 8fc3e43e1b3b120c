"""Networks of the zoo, written as lists of layers."""

XAVIER = {"weight_filler": "xavier", "bias_filler": "constant"}
LRN = {"lrn": {"size": 5, "alpha": 1e-4, "beta": 0.75}}
CAFFE_AVERAGE = {"pool": {"kind": "average", "size": 3, "stride": 2, "round": "ceil"}}
FIRST = {"weight_filler": {"name": "he", "by": "fan_out"}}


def normal(std, bias=0.0):
    return {
        "weight_filler": {"name": "gaussian", "std": std},
        "bias_filler": {"name": "constant", "value": bias},
    }


LENET = [
    {"conv": {"name": "conv1", "channels": 20, "kernel": 5, **XAVIER}},
    {"pool": {"name": "pool1", "size": 2}},
    {"conv": {"name": "conv2", "channels": 50, "kernel": 5, **XAVIER}},
    {"pool": {"size": 2}},
    {"linear": {"name": "ip1", "outputs": 500, **XAVIER}},
    "relu",
    {"linear": {"name": "ip2", "outputs": "classes", **XAVIER}},
]

CIFAR10_QUICK = [
    {"conv": {"channels": 32, "kernel": 5, "padding": 2, **normal(0.0001)}},
    {"pool": {"size": 3, "stride": 2, "round": "ceil"}},
    "relu",
    {"conv": {"channels": 32, "kernel": 5, "padding": 2, **normal(0.01)}},
    "relu",
    CAFFE_AVERAGE,
    {"conv": {"channels": 64, "kernel": 5, "padding": 2, **normal(0.01)}},
    "relu",
    CAFFE_AVERAGE,
    {"linear": {"name": "ip1", "outputs": 64, **normal(0.1)}},
    {"linear": {"name": "ip2", "outputs": "classes", **normal(0.1)}},
]

ALEXNET = [
    {"conv": {"channels": 96, "kernel": 11, "stride": 4, **normal(0.01)}},
    "relu",
    LRN,
    {"pool": {"size": 3, "stride": 2}},
    {"conv": {"channels": 256, "kernel": 5, "padding": 2, "groups": 2, **normal(0.01, 0.1)}},
    "relu",
    LRN,
    {"pool": {"size": 3, "stride": 2}},
    {"conv": {"channels": 384, "kernel": 3, "padding": 1, **normal(0.01)}},
    "relu",
    {"conv": {"channels": 384, "kernel": 3, "padding": 1, "groups": 2, **normal(0.01, 0.1)}},
    "relu",
    {"conv": {"channels": 256, "kernel": 3, "padding": 1, "groups": 2, **normal(0.01, 0.1)}},
    "relu",
    {"pool": {"name": "pool5", "size": 3, "stride": 2}},
    {"linear": {"name": "fc6", "outputs": 4096, **normal(0.005, 0.1)}},
    "relu",
    "dropout",
    {"linear": {"name": "fc7", "outputs": 4096, **normal(0.005, 0.1)}},
    "relu",
    "dropout",
    {"linear": {"name": "fc8", "outputs": "classes", **normal(0.01)}},
]


def stage(channels, stride):
    return [
        {"residual": {"channels": channels, "stride": stride}},
        {"residual": {"channels": channels}},
    ]


RESNET18 = [
    {"conv": {"channels": 64, "kernel": 3, "padding": 1, "bias": False, **FIRST}},
    "batch_norm",
    "relu",
    {"repeat": {"times": 2, "block": {"residual": {"channels": 64}}}},
    *stage(128, 2),
    *stage(256, 2),
    *stage(512, 2),
    {"pool": {"size": "global", "kind": "average"}},
    {"linear": {"name": "fc", "outputs": "classes", "weight_filler": "uniform_by_fan_in", "bias_filler": "constant"}},
]
