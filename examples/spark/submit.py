"""Train on a frame and score another one, in a cluster: spark-submit --master spark://alpha:7077 submit.py"""

import torch
import volary
import volary.spark
from pyspark.sql import SparkSession
from volary.data.sources.digits import Digits

SESSION = volary.Session(
    network="softmax",
    data={"source": "digits", "batch_size": 64},  # the frame takes the source's place
    optimizer={"name": "sgd", "lr": 0.05},
    train={"epochs": 4},
    strategy={"workers": 2, "startup_timeout_s": 600},
)


def frame(spark, split):
    """The digits that come with Volary; where samples are in a table already, spark.read.parquet(...)."""
    samples = Digits().open(split)
    images, labels = samples.fetch(torch.arange(len(samples)))
    rows = [(image.ravel().tolist(), int(label)) for image, label in zip(images, labels, strict=True)]
    return spark.createDataFrame(rows, "image array<float>, label int")


if __name__ == "__main__":
    spark = SparkSession.builder.appName("digits").getOrCreate()
    train, test = frame(spark, "train"), frame(spark, "test")
    result = volary.spark.train(
        spark, SESSION, data=train, validation=test, inputs="image", targets="label", shape=(1, 28, 28)
    )
    model = volary.spark.VolaryModel.from_run(result.directory.path, ["image"])
    right = model.transform(test).filter("prediction = label").count()
    print(f"{right} of {test.count()} digits are recognised")
    spark.stop()
