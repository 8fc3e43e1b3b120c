"""Stages of a pipeline of `pyspark.ml`: an estimator that trains a session, and the model that comes of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter
from pyspark.sql.functions import ArrowUDFType, arrow_udf, coalesce, col, lit

from volary.errors import BadInput
from volary.executors.arrays import layout_of
from volary.executors.sent import sent
from volary.session.spec import Session
from volary.spark.running import AS_ARRAYS, train, without_vectors
from volary.spark.scoring import PREDICTION, Scoring
from volary.spark.scoring_network import ScoringNetwork, session_of

_MADE = "volary_made"


class _Columns(Params):  # type: ignore[misc]  # PySpark's classes have no types where it is not installed
    """The parameters that estimator and model have in common."""

    inputCols = Param(Params._dummy(), "inputCols", "columns of the inputs", TypeConverters.toListString)  # noqa: N815
    outputs = Param(Params._dummy(), "outputs", "prediction, probability, names of layers", TypeConverters.toListString)
    shape = Param(Params._dummy(), "shape", "of one input; empty: as the column has it", TypeConverters.toListInt)

    def getInputCols(self) -> list[str]:  # noqa: N802
        """The columns of the inputs: one of arrays, vectors or bytes, or several of numbers. Raises BadInput."""
        if not self.isDefined(self.inputCols):
            raise BadInput("inputCols is not set; accepted: names of columns")
        return list(self.getOrDefault(self.inputCols))

    def setInputCols(self, value: Sequence[str]) -> Any:  # noqa: N802
        """Name the columns of the inputs; returns this stage."""
        return self._set(inputCols=list(value))

    def getOutputs(self) -> list[str]:  # noqa: N802
        """The columns that the model makes."""
        return list(self.getOrDefault(self.outputs))

    def setOutputs(self, value: Sequence[str]) -> Any:  # noqa: N802
        """Name the columns that the model makes; returns this stage."""
        return self._set(outputs=list(value))


class VolaryModel(Model, _Columns, MLWritable, MLReadable):  # type: ignore[misc]
    """A trained network as a stage: `transform` adds the columns `outputs`.

    `prediction` is the number of the class, or the network's value; `probability` of each class; the name of any layer
    gives its output as an array. All of the frame's other columns stay. decode: the one input is a column of image
    files, which the source of the run prepares as its validation data.
    """

    decode = Param(Params._dummy(), "decode", "whether the input is image files", TypeConverters.toBoolean)

    def __init__(self, network: ScoringNetwork) -> None:
        super().__init__()
        self.network = network
        self._setDefault(outputs=[PREDICTION], shape=[], decode=False)

    @classmethod
    def from_run(
        cls,
        run: str | Path,
        inputCols: Sequence[str],  # noqa: N803
        outputs: Sequence[str] = (PREDICTION,),
        *,
        step: int | None = None,
        shape: Sequence[int] = (),
        decode: bool = False,
    ) -> VolaryModel:
        """The network of a run, of its newest checkpoint or that of `step`.

        run: at a path, also in a store (`s3://bucket/runs/it`), or of that name in `runs/`. Raises RunError if there is
        no such run, and BadInput if it has no such checkpoint.
        """
        model = cls(ScoringNetwork.of_run(run, step))
        model._set(inputCols=list(inputCols), outputs=list(outputs), shape=list(shape), decode=decode)
        return model

    @classmethod
    def from_session(
        cls,
        session: Session | str | Path,
        inputCols: Sequence[str],  # noqa: N803
        outputs: Sequence[str] = (PREDICTION,),
        *,
        shape: Sequence[int],
        classes: int = 0,
        decode: bool = False,
    ) -> VolaryModel:
        """The network of a session with the weights of a file, of Caffe, PyTorch or safetensors (`network.weights`).

        session: or a file of one. shape: of one input. classes: how many it tells apart; 0: as the session says.
        Raises BadInput and SettingError as `ScoringNetwork.of_session`.
        """
        given = session if isinstance(session, Session) else Session.read(session)
        model = cls(ScoringNetwork.of_session(given, shape, classes))
        model._set(inputCols=list(inputCols), outputs=list(outputs), shape=list(shape), decode=decode)
        return model

    def _transform(self, dataset: Any) -> Any:
        inputs, outputs = self.getInputCols(), self.getOutputs()
        if taken := [name for name in outputs if name in dataset.columns]:
            raise BadInput(f"outputs: the frame has a column {taken[0]!r} already; accepted: names that it has not")
        types = {name: AS_ARRAYS.get(kind, kind) for name, kind in dataset.dtypes}
        layout = layout_of(types, inputs, shape=self.getOrDefault(self.shape) or _shape(self.network, types, inputs))
        scoring = Scoring.tried(self.network, layout, outputs, decodes=self.getOrDefault(self.decode))

        made = arrow_udf(sent(scoring.columns), returnType=scoring.schema(), functionType=ArrowUDFType.SCALAR)
        given = [without_vectors(dataset, name) for name in inputs]
        scored = dataset.withColumn(_MADE, made(*given))
        return scored.select("*", *(col(f"{_MADE}.`{name}`").alias(name) for name in outputs)).drop(_MADE)

    def write(self) -> Any:
        """Return the writer that saves it, to any path that Spark writes to."""
        return _ModelWriter(self)

    @classmethod
    def read(cls) -> Any:
        """Return what loads a saved one."""
        return _ModelReader(cls)


def _shape(network: ScoringNetwork, types: Mapping[str, str], inputs: Sequence[str]) -> Sequence[int]:
    """The network's own shape, for bytes, whose column says none."""
    return network.input_shape if inputs and types.get(inputs[0]) == "binary" else ()


class _ModelWriter(MLWriter):  # type: ignore[misc]
    def __init__(self, model: VolaryModel) -> None:
        super().__init__()
        self._model = model

    def saveImpl(self, path: str) -> None:  # noqa: N802
        network = self._model.network
        about = {"session": network.session, "input_shape": list(network.input_shape), "classes": network.classes}
        DefaultParamsWriter.saveMetadata(self._model, path, self.sparkSession, extraMetadata={"volary": about})
        weights = self.sparkSession.createDataFrame([(bytearray(network.weights),)], "weights binary")
        weights.write.parquet(f"{path}/weights")


class _ModelReader(MLReader):  # type: ignore[misc]
    def __init__(self, kind: type[VolaryModel]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> VolaryModel:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        (row,) = self.sparkSession.read.parquet(f"{path}/weights").collect()
        about = metadata["volary"]
        network = ScoringNetwork(about["session"], tuple(about["input_shape"]), about["classes"], bytes(row["weights"]))
        model = self._kind(network)
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


class VolaryEstimator(Estimator, _Columns, MLWritable, MLReadable):  # type: ignore[misc]
    """Trains a session on a frame, below tasks of its application: `fit` gives a `VolaryModel`.

    session: a file, or a `volary.Session`. inputCols, labelCol: columns as `volary.spark.train` takes them.
    validationIndicatorCol: a column of truth values: rows with true are validation data; without one the session must
    say evaluate.every=never. overrides: settings of the session as `train.epochs=3`, of which a grid may have several.
    shape, outputs: as the model's. initialModel: a model whose weights training begins with; it is not saved with the
    estimator.
    """

    labelCol = Param(Params._dummy(), "labelCol", "the column to predict", TypeConverters.toString)  # noqa: N815
    session = Param(Params._dummy(), "session", "the session, as text", TypeConverters.toString)
    overrides = Param(Params._dummy(), "overrides", "settings as a.b=value", TypeConverters.toListString)
    validationIndicatorCol = Param(  # noqa: N815
        Params._dummy(), "validationIndicatorCol", "the column that is true of validation data", TypeConverters.toString
    )

    def __init__(
        self,
        *,
        session: Session | str | Path | None = None,
        inputCols: Sequence[str] = (),  # noqa: N803
        labelCol: str = "label",  # noqa: N803
        validationIndicatorCol: str = "",  # noqa: N803
        overrides: Sequence[str] = (),
        outputs: Sequence[str] = (PREDICTION,),
        shape: Sequence[int] = (),
        initialModel: VolaryModel | None = None,  # noqa: N803
    ) -> None:
        super().__init__()
        self._first = None if initialModel is None else initialModel.network
        self._setDefault(labelCol="label", validationIndicatorCol="", overrides=[], outputs=[PREDICTION], shape=[])
        given: dict[str, Any] = {"labelCol": labelCol, "validationIndicatorCol": validationIndicatorCol}
        given |= {"overrides": list(overrides), "outputs": list(outputs), "shape": list(shape)}
        if inputCols:
            given["inputCols"] = list(inputCols)
        if session is not None:  # None: a reader sets all parameters
            read = session if isinstance(session, Session) else Session.read(session)
            given["session"] = read.to_yaml()
        self._set(**given)

    def _fit(self, dataset: Any) -> VolaryModel:
        label, indicator = self.getOrDefault(self.labelCol), self.getOrDefault(self.validationIndicatorCol)
        if not self.isDefined(self.session):
            raise BadInput("session is not set; accepted: a file of one, or a volary.Session")
        data, validation = _divided(dataset, indicator) if indicator else (dataset, None)
        inputs, shape = self.getInputCols(), self.getOrDefault(self.shape)
        named = inputs[0] if len(inputs) == 1 else inputs
        with self._begun() as begun:
            session = session_of(self.getOrDefault(self.session), [*self.getOrDefault(self.overrides), *begun])
            result = train(
                dataset.sparkSession,
                session,
                show=False,
                data=data,
                validation=validation,
                inputs=named,
                targets=label,
                shape=shape,
            )
        return VolaryModel.from_run(result.directory.path, inputs, self.getOutputs(), shape=shape)

    @contextmanager
    def _begun(self) -> Iterator[list[str]]:
        """The settings by which training begins with the initial model's weights, which are in a file meanwhile."""
        if self._first is None:
            yield []
            return
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            file.write(self._first.weights)
            file.flush()
            yield [f"network.weights={file.name}"]

    def write(self) -> Any:
        """Return the writer that saves it: all of it is parameters."""
        return DefaultParamsWriter(self)

    @classmethod
    def read(cls) -> Any:
        """Return what loads a saved one."""
        return DefaultParamsReader(cls)


def _divided(frame: Any, indicator: str) -> tuple[Any, Any]:
    """Rows for training, and those for validation, of which the column `indicator` is true. Raises BadInput."""
    kinds = dict(frame.dtypes)
    if indicator not in kinds:
        raise BadInput(f"data has no column {indicator!r}; accepted: {', '.join(kinds)}")
    if kinds[indicator] != "boolean":
        raise BadInput(f"validationIndicatorCol: column {indicator!r} is {kinds[indicator]}; accepted: boolean")
    validates = coalesce(col(f"`{indicator}`"), lit(False))  # a row without a value would be in neither
    return frame.filter(~validates), frame.filter(validates)
