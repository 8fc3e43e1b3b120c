"""Matrix factorisation in a stage of one's own, whose tasks hand parts of the model round: spark-submit rotation.py"""

import numpy as np
import pyarrow as pa
import volary.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

TASKS, USERS, ITEMS, FACTORS, ROUNDS, RATE = 2, 60, 40, 4, 30, 0.01
EACH = ITEMS // TASKS


def begin():
    """Ratings (users, items), and the factors of users and of items that training begins with."""
    rng = np.random.default_rng(1)
    ratings = rng.random((USERS, FACTORS)) @ rng.random((FACTORS, ITEMS))
    return ratings, rng.random((USERS, FACTORS)), rng.random((ITEMS, FACTORS))


def learn(ratings, users, items):
    """One step of gradient descent on a block of ratings; gives the factors of its users and of its items."""
    errors = ratings - users @ items.T
    return users + RATE * errors @ items, items + RATE * errors.T @ users


def part(rank, turn):
    """The items that a task has in a turn: in each turn tasks have different users, and different items."""
    first = (rank - turn) % TASKS * EACH
    return slice(first, first + EACH)


def alone():
    """Factors that one process comes to, block after block."""
    ratings, users, items = begin()
    for turn in range(ROUNDS * TASKS):
        for rank in range(TASKS):
            mine, theirs = slice(rank, None, TASKS), part(rank, turn)
            users[mine], items[theirs] = learn(ratings[mine, theirs], users[mine], items[theirs])
    return users, items


def tasks(group):
    """The function of the stage: each task has the ratings of its users, and a part of the items' factors."""

    def work(batches):
        rows = sorted((row["user"], row["ratings"]) for batch in batches for row in batch.to_pylist())
        ratings, (_, users, items) = np.array([one for _, one in rows]), begin()
        with group.joined() as team:
            mine, theirs = users[team.rank :: TASKS], items[part(team.rank, 0)]
            for turn in range(ROUNDS * TASKS):
                mine, theirs = learn(ratings[:, part(team.rank, turn)], mine, theirs)
                theirs = team.rotate(theirs)
            yield pa.RecordBatch.from_pydict(
                {"rank": [team.rank], "users": [mine.tobytes()], "items": [theirs.tobytes()]}
            )

    return work


if __name__ == "__main__":
    spark = SparkSession.builder.appName("rotation").getOrCreate()
    rows = [(user, one.tolist()) for user, one in enumerate(begin()[0])]
    frame = spark.createDataFrame(rows, "user int, ratings array<double>").repartitionById(TASKS, col("user") % TASKS)
    stage = frame.mapInArrow(tasks(volary.spark.TaskGroup()), "rank long, users binary, items binary", barrier=True)
    (ratings, _, _), (users, items) = begin(), alone()
    same = []
    for row in stage.collect():
        mine, theirs = (np.frombuffer(row[name]).reshape(-1, FACTORS) for name in ("users", "items"))
        same += [np.allclose(mine, users[row["rank"] :: TASKS]), np.allclose(theirs, items[part(row["rank"], 0)])]
    error, word = np.abs(ratings - users @ items.T).mean(), "same" if all(same) else "wrong"
    print(f"mean error {error:.3f}; the {word} factors as in one process, of {len(same)} parts")
    spark.stop()
