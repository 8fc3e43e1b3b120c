"""A notebook, cell by cell: an estimator is fitted to a frame, and its model scores another one."""

# %% The notebook's session, of a cluster or of a Connect server (SPARK_REMOTE=sc://alpha:15002)
import torch
import volary
from pyspark.sql import SparkSession
from volary.data.sources.digits import Digits
from volary.spark import VolaryEstimator

spark = SparkSession.builder.getOrCreate()

# %% Rows; where they are in a table already, spark.read.parquet(...)
samples = Digits().open("train")
images, labels = samples.fetch(torch.arange(len(samples)))
rows = [(image.ravel().tolist(), int(label)) for image, label in zip(images, labels, strict=True)]
train, test = spark.createDataFrame(rows, "image array<float>, label int").randomSplit([0.8, 0.2], seed=1)

# %% Train
session = volary.Session(
    network="softmax",
    data={"source": "digits", "batch_size": 64},  # the frame takes the source's place
    optimizer={"name": "sgd", "lr": 0.05},
    train={"epochs": 4},
    evaluate={"every": "never"},
    strategy={"workers": 2, "startup_timeout_s": 600},
)
model = VolaryEstimator(session=session, inputCols=["image"], shape=[1, 28, 28]).fit(train)

# %% Score
right = model.transform(test).filter("prediction = label").count()
print(f"{right} of {test.count()} digits are recognised")

# %% How sure it is, of each digit
model.setOutputs(["prediction", "probability"]).transform(test).drop("image").show(3)
